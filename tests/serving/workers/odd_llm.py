"""A third party's language model for tests. The last message selects its behaviour."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from msgspec import Struct

from core.conversation.usage import RateLimit, RateLimits, TokenUsage
from core.errors import ContextLengthExceeded, EngineError
from core.ports import ToolSpec
from engines.base import (
    AS_CONFIGURED,
    CallDelta,
    LlmOptions,
    Message,
    TextDelta,
    ToolCall,
    WorkerProfile,
)

LIMITS = RateLimits((RateLimit("tokens", 100, 99, 1.5),))
CALL = ToolCall("call_1", "light", {"on": True})


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    at_once: int = 2
    has_weights: bool = True


class OddLlm:
    name = "odd"
    languages = ("en", "de")
    context_tokens: int | None = 512

    def __init__(self, settings: Settings) -> None:
        self.max_concurrency: int | None = settings.at_once
        self._settings = settings
        self._is_loaded = False
        self._cancelled = 0

    def load(self) -> None:
        if not self._settings.has_weights:
            raise EngineError("llm", "odd", "no chat template")
        self._is_loaded = True

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[Any, None]:
        assert self._is_loaded
        match messages[-1].text:
            case "everything":
                yield TextDelta(f"{language} {tools[0].name} {options.temperature}")
                yield CallDelta(CALL.call_id, CALL.name, '{"on"')
                yield CALL
                yield LIMITS
            case "endless":
                try:
                    yield TextDelta("one")
                    await asyncio.Event().wait()
                finally:
                    self._cancelled += 1
            case "too long":
                raise ContextLengthExceeded("llm", "odd", "a prompt of 600 tokens")
            case _:
                yield TextDelta(f"{self._cancelled} were cancelled")
        yield TokenUsage(12, 3, 8)


def worker_profile(settings: Settings) -> WorkerProfile:
    return WorkerProfile(load_timeout_s=30.0)


def create(settings: Settings) -> OddLlm:
    return OddLlm(settings)
