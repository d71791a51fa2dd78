"""What a server says of itself: its model, and how much fits into it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.errors import EngineError, EngineUnreachable
from engines.llm.openai.settings import AUTO, Settings
from engines.runtime.openai_http.client import RETRIED, ChatCompletionsClient
from engines.runtime.openai_http.errors import LlmHttpError

logger = logging.getLogger(__name__)

CONTEXT_TOKENS = 8192
"Where nobody says. Less than most models have: a lost beginning is better than a refused turn."

LLAMA_CPP = "llamacpp"
OLLAMA = "library"
"Owner of the models of Ollama's library."
OLLAMA_TOKENS = 4096
"""What Ollama takes without a `num_ctx` on machines with little GPU memory. It forgets the
beginning of what is longer, the instructions, and says nothing."""


PENALTY = {
    "vllm": "repetition_penalty",
    "sglang": "repetition_penalty",
    LLAMA_CPP: "repeat_penalty",
}
"""Whose owner a list of models names -> what it calls a repetition penalty, of one meaning. OpenAI
has none; its `frequency_penalty` is another thing, and an unknown field is refused."""


BY_TEMPLATE: Mapping[str, Any] = {
    "chat_template_kwargs": {"enable_thinking": False, "thinking": False}
}
"""Read by the model's own chat template: Qwen and GLM have the first name, DeepSeek and Granite the
second, and templates that know neither ignore them."""
BY_EFFORT: Mapping[str, Any] = {"reasoning_effort": "none"}

WITHOUT_THOUGHTS: Mapping[str, Mapping[str, Any]] = {
    "vllm": BY_TEMPLATE,
    "sglang": BY_TEMPLATE,
    LLAMA_CPP: BY_TEMPLATE,
    OLLAMA: BY_EFFORT,  # it reads no `think` behind /v1
    "openai": BY_EFFORT,
    "system": BY_EFFORT,  # OpenAI as well
}
"""Whose owner a list of models names -> the fields that let its model answer at once. Others
are sent both, and what they refuse is left out from then on."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    model: str
    context_tokens: int
    is_sure: bool = True
    "False: the server is not ready to say; to be asked again."
    penalty: str | None = None
    "Its field for a repetition penalty; None: none that is known."
    owner: str = ""
    "As the list of models says; empty: it does not."
    is_owner_known: bool = True
    "False: nothing had to be asked, so nobody knows who serves it."

    def without_thoughts(self) -> Mapping[str, Any]:
        """Fields of a request whose answer is to begin at once."""
        return WITHOUT_THOUGHTS.get(self.owner, {**BY_TEMPLATE, **BY_EFFORT})

    def penalized(self, penalty: float | None) -> dict[str, float]:
        """Fields of a request."""
        return {} if penalty is None or self.penalty is None else {self.penalty: penalty}


async def probe_server(client: ChatCompletionsClient, settings: Settings, name: str) -> ServerInfo:
    """Ask for what is not configured. Raises EngineError."""
    if settings.model != AUTO and settings.context_tokens:
        return ServerInfo(settings.model, settings.context_tokens, is_owner_known=False)
    doubts: list[EngineError] = []
    entries = await _models(client, doubts, must_know=settings.model == AUTO)
    if settings.model != AUTO:
        model = settings.model
    elif entries:
        model = next(iter(entries))
    else:
        raise EngineError("llm", name, f"{client.url} lists no model; set model")
    context_tokens = settings.context_tokens
    if context_tokens is None:
        entry = entries.get(_listed_as(entries, model), {})
        context_tokens = await _context(client, doubts, entry, model, _owner(entries, model))
    is_sure = not _may_change(doubts)
    owner = _owner(entries, model)
    found = ServerInfo(model, context_tokens or CONTEXT_TOKENS, is_sure, PENALTY.get(owner), owner)
    logger.info("llm engine %r: model %s, %d tokens", name, found.model, found.context_tokens)
    return found


async def listed_models(client: ChatCompletionsClient) -> frozenset[str]:
    """Names of the models that a server lists; empty where it has no list. Raises EngineError."""
    return frozenset(await _models(client, [], must_know=False))


async def with_owner(client: ChatCompletionsClient, served: ServerInfo) -> ServerInfo:
    """Asked for when something depends on it, and only then: an answer without it is better than
    none, so a server that does not say now is asked again next time."""
    doubts: list[EngineError] = []
    try:
        entries = await _models(client, doubts, must_know=False)
    except EngineError:
        return served
    if _may_change(doubts):
        return served
    owner = _owner(entries, served.model)
    return replace(served, penalty=PENALTY.get(owner), owner=owner, is_owner_known=True)


async def _models(
    client: ChatCompletionsClient, doubts: list[EngineError], *, must_know: bool
) -> Mapping[str, Mapping[str, Any]]:
    """Name -> what the server says of it. Empty where it has no such list and none is needed."""
    try:
        listing = await client.get(f"{client.url}/models")
    except EngineError as exc:
        if must_know or exc.retryable:
            raise
        doubts.append(exc)
        return {}
    data = listing.get("data") if isinstance(listing, dict) else None
    listed = data if isinstance(data, list) else ()
    entries = [entry for entry in listed if isinstance(entry, dict)]
    return {entry["id"]: entry for entry in entries if isinstance(entry.get("id"), str)}


async def _context(
    client: ChatCompletionsClient,
    doubts: list[EngineError],
    entry: Mapping[str, Any],
    model: str,
    owner: str,
) -> int | None:
    """vLLM lists it with the model; llama.cpp has it beside the API, per slot; Ollama tells it of a
    model that is loaded."""
    listed = entry.get("max_model_len")
    if _is_count(listed):
        return listed
    root = client.url.removesuffix("/v1")
    if owner == OLLAMA:
        running = await _asked(client, f"{root}/api/ps", doubts)
        models = running.get("models") if isinstance(running, dict) else None
        if not isinstance(models, list):
            return OLLAMA_TOKENS
        for one in models:
            told = (one.get("name"), one.get("model")) if isinstance(one, dict) else ()
            if any(name in told for name in names_of(model)):
                found = one.get("context_length")
                return found if _is_count(found) else OLLAMA_TOKENS
        doubts.append(EngineUnreachable("llm", OLLAMA, f"{model} is not loaded yet"))
        return OLLAMA_TOKENS
    props = await _asked(client, f"{root}/props", doubts)
    slot = props.get("default_generation_settings") if isinstance(props, dict) else None
    listed = slot.get("n_ctx") if isinstance(slot, dict) else None
    return listed if _is_count(listed) else None


async def _asked(client: ChatCompletionsClient, url: str, doubts: list[EngineError]) -> Any:
    """What a server says beside the API; None where it does not."""
    try:
        return await client.get(url)
    except EngineError as exc:
        doubts.append(exc)
        return None


def _owner(entries: Mapping[str, Mapping[str, Any]], model: str) -> str:
    """A server of one model, as llama.cpp is, answers to any name."""
    only = next(iter(entries.values())) if len(entries) == 1 else {}
    owner = entries.get(_listed_as(entries, model), only).get("owned_by")
    return owner if isinstance(owner, str) else ""


def _listed_as(entries: Mapping[str, Mapping[str, Any]], model: str) -> str:
    """The name in the list that a configured one means; itself where there is none."""
    return next((name for name in names_of(model) if name in entries), model)


def names_of(model: str) -> Sequence[str]:
    """What a server may call a model. Ollama takes a name without a tag for `latest`."""
    return (model,) if ":" in model else (model, f"{model}:latest")


def _may_change(doubts: Sequence[EngineError]) -> bool:
    """The server was busy or not ready: it may say more later."""
    return any(
        one.status in RETRIED
        if isinstance(one, LlmHttpError)
        else isinstance(one, EngineUnreachable)
        for one in doubts
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value > 0
