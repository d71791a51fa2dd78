"""A user's module with a tool that acts, and a language model that always calls it."""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from core.conversation.usage import TokenUsage
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from pipeline.tools.functions import tool

CONFIG = """
[asr]
engine = "bench.server.stub_engines.asr"
[llm]
engine = "tests.server.commands.replay.garage"
[tts]
engine = "bench.server.stub_engines.tts"
[tools]
modules = ["tests.server.commands.replay.garage"]
"""

opened: list[str] = []
"Doors, in the order in which they were opened."


@tool()
def open_garage(door: str) -> str:
    """Opens a garage door."""
    opened.append(door)
    return "it is open now"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Opener:
    """A language model that opens the left door and says the result."""

    name = "opener"
    languages: tuple[str, ...] = ()
    context_tokens: int | None = None

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall | TokenUsage, None]:
        """See `Llm.reply`."""
        if messages[-1].role == "tool":
            yield TextDelta(messages[-1].text)
        else:
            yield ToolCall("c", "open_garage", {"door": "left"})


def create(settings: Settings) -> Opener:
    return Opener()
