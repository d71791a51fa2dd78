"""A language model for tests: it calls `which_bin` for Monday, if there is such a tool, and answers
with the result."""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class WhichBinCaller:
    """An `Llm` that calls one tool."""

    name = "which_bin_caller"
    languages: tuple[str, ...] = ()
    context_tokens: int | None = None

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """Implements `Llm.reply`."""
        if messages[-1].role == "tool":
            yield TextDelta(messages[-1].text)
        elif "which_bin" in [tool.name for tool in tools]:
            yield ToolCall("c", "which_bin", {"day": "monday"})
        else:
            yield TextDelta("Which bins are there?")


def create(settings: Settings) -> WhichBinCaller:
    return WhichBinCaller()
