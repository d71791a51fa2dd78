"""A conversation in text with the intents model and the built-in tools."""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from core.ports import ToolContext, ToolProvider, ToolSpec
from engines.base import Message, TextDelta, ToolCall
from engines.llm import intents
from engines.llm.intents.engine import IntentsLlm
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import ClockTools, HomeTools, ListTools, Timers, TimerTools
from pipeline.tools.toolbox import Toolbox
from tests.pipeline.fakes import Counts, ManualClock

MAX_ROUNDS = 3


@dataclass
class RecordingAnnouncer:
    """An Announcer that records announcements. They fail while `is_anybody_there` is False."""

    said: list[tuple[str, str]] = field(default_factory=list)
    is_anybody_there: bool = True

    async def announce(self, conversation_id: str, text: str) -> bool:
        if self.is_anybody_there:
            self.said.append((conversation_id, text))
        return self.is_anybody_there


@dataclass(frozen=True)
class TurnResult:
    """Outcome of one turn."""

    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    "The tools that were called, with their arguments."
    reply: str


class Talk:
    """One conversation in text: takes a user's sentence and returns tool calls and the answer.

    `say` begins a new conversation with each sentence, `go_on` continues the previous one.
    """

    def __init__(self, language: str = "en") -> None:
        self.clock = ManualClock()
        self.home = Home(default_home())
        self.timers = Timers(self.home, self.clock, RecordingAnnouncer())
        self.context = ToolContext("conv_test", language)
        self.llm: IntentsLlm = intents.create(intents.Settings())
        providers: list[ToolProvider] = [
            HomeTools(self.home),
            ClockTools(self.clock),
            TimerTools(self.timers),
            ListTools(self.home),
        ]
        self.tools = Toolbox(providers, Counts())
        self.messages: list[Message] = []

    def specs(self) -> list[ToolSpec]:
        return self.tools.specs(self.context)

    async def say(self, text: str) -> TurnResult:
        return await self._turn([Message("user", text)])

    async def go_on(self, text: str) -> TurnResult:
        self.messages.append(Message("user", text))
        said = await self._turn(self.messages)
        self.messages.append(Message("assistant", said.reply))
        return said

    async def _turn(self, messages: list[Message]) -> TurnResult:
        done: list[tuple[str, Mapping[str, Any]]] = []
        for _ in range(MAX_ROUNDS):
            spoken, calls = await self._reply(messages)
            if not calls:
                return TurnResult(tuple(done), spoken)
            messages.append(Message("assistant", spoken, tool_calls=calls))
            results = await self.tools.run(calls, self.context)
            for call, result in zip(calls, results, strict=True):
                done.append((call.name, call.arguments))
                messages.append(Message("tool", result, call_id=call.call_id))
        raise AssertionError(f"still calling tools after {MAX_ROUNDS} rounds")

    async def _reply(self, messages: list[Message]) -> tuple[str, tuple[ToolCall, ...]]:
        texts: list[str] = []
        calls: list[ToolCall] = []
        stream = self.llm.reply(messages, self.specs(), language=self.context.language)
        async with aclosing(stream) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextDelta):
                    texts.append(delta.text)
                else:
                    calls.append(delta)
        return "".join(texts), tuple(calls)
