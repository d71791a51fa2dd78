"""What a server says of itself: its model, and how much fits into it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.errors import EngineError
from engines.llm.openai.client import RETRIED, Client
from engines.llm.openai.refusals import Refused
from engines.llm.openai.settings import AUTO, Settings

logger = logging.getLogger(__name__)

CONTEXT_TOKENS = 8192
"Where nobody says. Less than most models have: a lost beginning is better than a refused turn."


PENALTY = {
    "vllm": "repetition_penalty",
    "sglang": "repetition_penalty",
    "llamacpp": "repeat_penalty",
}
"""Whose owner a list of models names -> what it calls a repetition penalty, of one meaning. OpenAI
has none; its `frequency_penalty` is another thing, and an unknown field is refused."""


@dataclass(frozen=True, slots=True)
class Served:
    model: str
    context_tokens: int
    is_sure: bool = True
    "False: the server is not ready to say; to be asked again."
    penalty: str | None = None
    "Its field for a repetition penalty; None: none that is known."
    is_owner_known: bool = True
    "False: nothing had to be asked, so nobody knows who serves it."

    def penalized(self, penalty: float | None) -> dict[str, float]:
        """Fields of a request."""
        return {} if penalty is None or self.penalty is None else {self.penalty: penalty}


async def look(client: Client, settings: Settings, name: str) -> Served:
    """Ask for what is not configured. Raises EngineError."""
    if settings.model != AUTO and settings.context_tokens:
        return Served(settings.model, settings.context_tokens, is_owner_known=False)
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
        context_tokens = await _context(client, doubts, entries.get(model, {}))
    is_sure = not _may_change(doubts)
    penalty = _penalty(entries, model)
    found = Served(model, context_tokens or CONTEXT_TOKENS, is_sure, penalty)
    logger.info("llm engine %r: model %s, %d tokens", name, found.model, found.context_tokens)
    return found


async def with_owner(client: Client, served: Served) -> Served:
    """Asked for when a penalty is wanted, and only then: an answer without it is better than none,
    so a server that does not say now is asked again next time."""
    doubts: list[EngineError] = []
    try:
        entries = await _models(client, doubts, must_know=False)
    except EngineError:
        return served
    if _may_change(doubts):
        return served
    return replace(served, penalty=_penalty(entries, served.model), is_owner_known=True)


async def _models(
    client: Client, doubts: list[EngineError], *, must_know: bool
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
    client: Client, doubts: list[EngineError], entry: Mapping[str, Any]
) -> int | None:
    """vLLM lists it with the model; llama.cpp has it beside the API, per slot."""
    listed = entry.get("max_model_len")
    if not _is_count(listed):
        root = client.url.removesuffix("/v1")
        try:
            props = await client.get(f"{root}/props")
        except EngineError as exc:
            doubts.append(exc)
            return None
        slot = props.get("default_generation_settings") if isinstance(props, dict) else None
        listed = slot.get("n_ctx") if isinstance(slot, dict) else None
    return listed if _is_count(listed) else None


def _penalty(entries: Mapping[str, Mapping[str, Any]], model: str) -> str | None:
    """A server of one model, as llama.cpp is, answers to any name."""
    only = next(iter(entries.values())) if len(entries) == 1 else {}
    owner = entries.get(model, only).get("owned_by")
    return PENALTY.get(owner) if isinstance(owner, str) else None


def _may_change(doubts: Sequence[EngineError]) -> bool:
    """The server was busy or not ready: it may say more later."""
    return any(isinstance(one, Refused) and one.status in RETRIED for one in doubts)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value > 0
