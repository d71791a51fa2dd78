"""Language models, tools and voices that follow a script."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.audio import AudioFrame, Pcm
from core.conversation.items import (
    MessageItem,
    TextPart,
)
from core.conversation.usage import RateLimits, TokenUsage
from core.ports import ToolContext, ToolOutcome, ToolSpec
from engines.base import (
    AS_CONFIGURED,
    CallDelta,
    LlmOptions,
    Message,
    TextDelta,
    ToolCall,
    WordMark,
)
from tests.pipeline.fakes import Adder, EchoLlm, LoudVad, ToneTts, World


class AsksTool(EchoLlm):
    """A model that calls the tool, then says `afterwards`."""

    def __init__(self, afterwards: str = "It is done.") -> None:
        super().__init__()
        self.afterwards = afterwards

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        self.asked.append(list(messages))
        if messages[-1].role != "tool":
            yield ToolCall("call_1", "slow", {})
        elif self.afterwards:
            yield TextDelta(self.afterwards)


class SlowTool:
    def __init__(
        self, takes_s: float, error: str | None = None, *, is_read_only: bool = False
    ) -> None:
        self.takes_s, self.error, self.is_read_only = takes_s, error, is_read_only

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        is_read_only = self.is_read_only
        return [ToolSpec("slow", "Takes its time.", {"type": "object"}, is_read_only=is_read_only)]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        await asyncio.sleep(self.takes_s)
        return ToolOutcome({}, error=self.error)


class WordTts(ToneTts):
    """A voice that marks 200 ms for every word and notes the clauses that it got."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        async def noted() -> AsyncIterable[str]:
            chunk = 0
            async for clause in text:
                start_ms, end_char = float(self.clause_ms * chunk), 0
                for number, word in enumerate(clause.split()):
                    end_char = clause.index(word, end_char) + len(word)
                    begin = start_ms + 200 * number
                    if on_word is not None:
                        on_word(WordMark(chunk, end_char, begin, begin + 200))
                self.read.append(clause)
                chunk += 1
                yield clause

        async for frame in super().speak(noted(), language=language, voice=voice, speed=speed):
            yield frame


class Says(EchoLlm):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        yield TextDelta(self.text)


class ToolLlm(EchoLlm):
    """A model that calls the tool first, whatever the question is."""

    tool = "add"

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        if messages[-1].role != "tool":
            yield ToolCall("call_1", self.tool, {"a": 2, "b": 2})
            return
        yield TextDelta(f"It is {messages[-1].text} now, as you wished.")


class Watched(Adder):
    """A tool that notes when it ran."""

    def __init__(self, *, is_read_only: bool) -> None:
        self.is_read_only = is_read_only
        self.ran: list[float] = []

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        return [ToolSpec("add", "Adds.", {"type": "object"}, is_read_only=self.is_read_only)]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        self.ran.append(asyncio.get_running_loop().time())
        return await super().call(name, arguments, context)


Delta = TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits


@dataclass
class ScriptedLlm(EchoLlm):
    """A model with one list of deltas for each round; after the last list it repeats the last
    message."""

    rounds: list[list[Delta]] = field(default_factory=list)
    lasts_s: float = 0
    "The time that each reply takes to end."
    offered: list[list[str]] = field(default_factory=list)
    options: list[LlmOptions] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    async def reply(  # type: ignore[override]
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[Delta, None]:
        self.asked.append(list(messages))
        self.offered.append([tool.name for tool in tools])
        self.options.append(options)
        last = messages[-1].text if messages else "nothing"
        for delta in self.rounds.pop(0) if self.rounds else [TextDelta(last)]:
            yield delta
        await asyncio.sleep(self.lasts_s)


def world(*rounds: list[Delta]) -> tuple[World, ScriptedLlm]:
    llm = ScriptedLlm(rounds=list(rounds))
    return World(llm=llm), llm


def said(text: str, item_id: str = "item_u") -> MessageItem:
    return MessageItem(item_id, "user", (TextPart(text),))


MS = 16
"Samples per millisecond."


def audio(*script: tuple[int, float]) -> Pcm:
    """Returns audio of (level, ms) runs."""
    return np.concatenate([np.full(round(ms * MS), level, np.int16) for level, ms in script])


class FaintVad(LoudVad):
    """A VAD that gives loud samples this probability of speech."""

    def __init__(self, most: float = 0.45) -> None:
        self.most = most

    def push(self, pcm: Pcm) -> float:
        return self.most * super().push(pcm)
