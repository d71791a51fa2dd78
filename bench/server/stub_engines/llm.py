"""Language model whose first token takes a fixed time. The rest of its answer takes none."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from core.conversation.usage import TokenUsage
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall

ANSWER = "All the lights in the kitchen are on now."
"Answer to every request."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    delay_ms: Annotated[float, Meta(ge=0, le=10_000)] = 0
    "Time to the first token."


class StubLlm:
    """An `Llm` that always writes ANSWER."""

    name = "stub"
    languages: tuple[str, ...] = ()
    context_tokens: int | None = None

    def __init__(self, settings: Settings) -> None:
        self._delay_s = settings.delay_ms / 1000

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall | TokenUsage, None]:
        """See `Llm.reply`."""
        await asyncio.sleep(self._delay_s)
        for word in ANSWER.split():
            yield TextDelta(f"{word} ")


def create(settings: Settings) -> StubLlm:
    return StubLlm(settings)
