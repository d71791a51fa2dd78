"""Asks a server for its model, the size of its context and its kind (vLLM, llama.cpp, ...)."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from core.errors import EngineError, EngineUnreachable
from engines.llm.openai.settings import AUTO, Settings
from engines.runtime.openai_http.client import RETRY_STATUSES, OpenAiHttpClient
from engines.runtime.openai_http.errors import OpenAiHttpError

logger = logging.getLogger(__name__)

DEFAULT_CONTEXT_TOKENS = 8192
"""Assumed context window if neither settings nor server give one. Most models have more, but a
shortened history is better than a refused turn."""

LLAMA_CPP_OWNER = "llamacpp"
"Owner (`owned_by`) of the model in llama.cpp's list."
OLLAMA_OWNER = "library"
"Owner (`owned_by`) of Ollama's library models in its list."
OLLAMA_CONTEXT_TOKENS = 4096
"""Context window of Ollama without a `num_ctx` on machines with little GPU memory. Ollama silently
drops the beginning of a longer prompt, which holds the instructions."""

PENALTY_FIELDS = {
    "vllm": "repetition_penalty",
    "sglang": "repetition_penalty",
    LLAMA_CPP_OWNER: "repeat_penalty",
}
"""Owner of the model -> name of the field for a repetition penalty; all mean the same. OpenAI has
none: its `frequency_penalty` is something else, and it refuses unknown fields."""

NO_THINKING_BY_TEMPLATE: Mapping[str, object] = {
    "chat_template_kwargs": {"enable_thinking": False, "thinking": False}
}
"""Fields that the model's chat template reads to turn thoughts off. Qwen and GLM know the first
name, DeepSeek and Granite the second; templates that know neither ignore them."""
NO_THINKING_BY_EFFORT: Mapping[str, object] = {"reasoning_effort": "none"}
"Field that the server itself reads to turn thoughts off."

NO_THINKING_FIELDS: Mapping[str, Mapping[str, object]] = {
    "vllm": NO_THINKING_BY_TEMPLATE,
    "sglang": NO_THINKING_BY_TEMPLATE,
    LLAMA_CPP_OWNER: NO_THINKING_BY_TEMPLATE,
    OLLAMA_OWNER: NO_THINKING_BY_EFFORT,  # it reads no `think` behind /v1
    "openai": NO_THINKING_BY_EFFORT,
    "system": NO_THINKING_BY_EFFORT,  # OpenAI as well
}
"""Owner of the model -> fields that make it answer without thoughts. Other servers get the fields
of both kinds; a field that they refuse is left out from then on (see `ServerQuirks`)."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Facts about a server, from its answers and the settings."""

    model: str
    context_tokens: int
    is_complete: bool = True
    "False: the server was not ready for all questions. They are repeated before the next answer."
    penalty_field: str | None = None
    "Name of the server's field for a repetition penalty; None: not known."
    owner: str = ""
    "Owner of the model in the server's list, which shows the kind of server; empty: not listed."
    is_owner_known: bool = True
    "False: the list was not requested, because the settings give model and context."

    def no_thinking_fields(self) -> Mapping[str, object]:
        """Returns the fields of a request that ask the model not to think."""
        return NO_THINKING_FIELDS.get(
            self.owner, {**NO_THINKING_BY_TEMPLATE, **NO_THINKING_BY_EFFORT}
        )

    def penalty_fields(self, penalty: float | None) -> dict[str, float]:
        """Returns the field of a request for a repetition penalty; empty if none is known."""
        if penalty is None or self.penalty_field is None:
            return {}
        return {self.penalty_field: penalty}


async def probe_server(client: OpenAiHttpClient, settings: Settings, name: str) -> ServerInfo:
    """Asks the server for everything that the settings leave open.

    name: name of the engine in errors and log lines. Raises EngineError if the server cannot be
    reached, or lists no model while the settings name none.
    """
    if settings.model != AUTO and settings.context_tokens:
        return ServerInfo(settings.model, settings.context_tokens, is_owner_known=False)
    failures: list[EngineError] = []
    entries = await _models(client, failures, is_required=settings.model == AUTO)
    if settings.model != AUTO:
        model = settings.model
    elif entries:
        model = next(iter(entries))
    else:
        raise EngineError("llm", name, f"{client.url} lists no model; set model")
    context_tokens = settings.context_tokens
    if context_tokens is None:
        entry = entries.get(_listed_name(entries, model), {})
        context_tokens = await _context(client, failures, entry, model, _owner(entries, model))
    is_complete = not _may_succeed_later(failures)
    owner = _owner(entries, model)
    found = ServerInfo(
        model,
        context_tokens or DEFAULT_CONTEXT_TOKENS,
        is_complete,
        PENALTY_FIELDS.get(owner),
        owner,
    )
    logger.info(
        "llm engine %r uses model %s, context %d tokens", name, found.model, found.context_tokens
    )
    return found


async def listed_models(client: OpenAiHttpClient) -> frozenset[str]:
    """Returns the names of the models that a server lists; empty without a list.

    Raises EngineError.
    """
    return frozenset(await _models(client, [], is_required=False))


async def with_owner(client: OpenAiHttpClient, server: ServerInfo) -> ServerInfo:
    """Returns `server` with the owner of its model, which takes one request.

    Errors are ignored, because an answer is possible without the owner: `server` is returned
    unchanged, and the next call asks again.
    """
    failures: list[EngineError] = []
    try:
        entries = await _models(client, failures, is_required=False)
    except EngineError:
        return server
    if _may_succeed_later(failures):
        return server
    owner = _owner(entries, server.model)
    return replace(
        server, penalty_field=PENALTY_FIELDS.get(owner), owner=owner, is_owner_known=True
    )


async def _models(
    client: OpenAiHttpClient, failures: list[EngineError], *, is_required: bool
) -> Mapping[str, Mapping[str, object]]:
    """Returns the entries of the server's list of models, by model name.

    failures: gets the error if the server has no list. It is raised instead if the list is required
    or a later try may succeed.
    """
    try:
        listing = await client.get_json(f"{client.url}/models")
    except EngineError as exc:
        if is_required or exc.retryable:
            raise
        failures.append(exc)
        return {}
    data = listing.get("data") if isinstance(listing, dict) else None
    listed = data if isinstance(data, list) else ()
    entries = [entry for entry in listed if isinstance(entry, dict)]
    return {entry["id"]: entry for entry in entries if isinstance(entry.get("id"), str)}


async def _context(
    client: OpenAiHttpClient,
    failures: list[EngineError],
    entry: Mapping[str, object],
    model: str,
    owner: str,
) -> int | None:
    """Returns the size of the context in tokens, or None.

    vLLM lists it with the model. llama.cpp reports it per slot at `/props`, outside the API. Ollama
    reports it at `/api/ps` for a loaded model.

    failures: gets the errors. entry: the model's entry in the server's list; empty: not listed.
    """
    size = entry.get("max_model_len")
    if _is_count(size):
        return size
    root = client.url.removesuffix("/v1")
    if owner == OLLAMA_OWNER:
        running = await _get_or_none(client, f"{root}/api/ps", failures)
        models = running.get("models") if isinstance(running, dict) else None
        if not isinstance(models, list):
            return OLLAMA_CONTEXT_TOKENS
        for loaded in models:
            names = (loaded.get("name"), loaded.get("model")) if isinstance(loaded, dict) else ()
            if any(name in names for name in possible_names(model)):
                length = loaded.get("context_length")
                return length if _is_count(length) else OLLAMA_CONTEXT_TOKENS
        failures.append(EngineUnreachable("llm", OLLAMA_OWNER, f"{model} is not loaded yet"))
        return OLLAMA_CONTEXT_TOKENS
    props = await _get_or_none(client, f"{root}/props", failures)
    slot = props.get("default_generation_settings") if isinstance(props, dict) else None
    size = slot.get("n_ctx") if isinstance(slot, dict) else None
    return size if _is_count(size) else None


async def _get_or_none(client: OpenAiHttpClient, url: str, failures: list[EngineError]) -> Any:
    """Returns the JSON at an address outside the API. If that fails, adds the error to `failures`
    and returns None."""
    try:
        return await client.get_json(url)
    except EngineError as exc:
        failures.append(exc)
        return None


def _owner(entries: Mapping[str, Mapping[str, object]], model: str) -> str:
    """Returns the owner of a model; empty if unknown.

    A server with one model, such as llama.cpp, accepts any name, so its only entry counts.
    """
    only = next(iter(entries.values())) if len(entries) == 1 else {}
    owner = entries.get(_listed_name(entries, model), only).get("owned_by")
    return owner if isinstance(owner, str) else ""


def _listed_name(entries: Mapping[str, Mapping[str, object]], model: str) -> str:
    """Returns the listed name of a configured model; the configured name if it is not listed."""
    return next((name for name in possible_names(model) if name in entries), model)


def possible_names(model: str) -> Sequence[str]:
    """Returns the names that `model` may have in a server's list.

    For Ollama a name without a tag means the tag `latest`.
    """
    return (model,) if ":" in model else (model, f"{model}:latest")


def _may_succeed_later(failures: Sequence[EngineError]) -> bool:
    """Returns True if the server was busy or not ready, and may answer later."""
    return any(
        failure.status in RETRY_STATUSES
        if isinstance(failure, OpenAiHttpError)
        else isinstance(failure, EngineUnreachable)
        for failure in failures
    )


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value > 0
