"""Scripted engines for tests in virtual time. Loud samples are speech; their level is a word."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from core.errors import EngineError
from core.events import SessionEvent
from core.ports import ToolContext, ToolOutcome, ToolSpec
from engines.base import (
    AsrInfo,
    AsrItem,
    AsrResult,
    Message,
    TextDelta,
    ToolCall,
    TtsInfo,
    Vad,
)
from pipeline.conversation import Conversations
from pipeline.engines import EngineSet
from pipeline.session import Session
from pipeline.surroundings import Surroundings
from pipeline.tools import Toolbox
from serving.scheduler import Priority

FRAME = 320
WORDS = {1000: "one", 2000: "two", 3000: "three", 4000: "four", 5000: "noise"}


class LoopClock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@dataclass
class Counts:
    """Metrics that can be asked."""

    counts: dict[str, float] = field(default_factory=dict)
    observed: dict[str, list[float]] = field(default_factory=dict)

    def count(self, name: str, value: float = 1, /, **labels: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + value

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        self.observed.setdefault(name, []).append(seconds)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.counts[name] = value


class LoudVad:
    frame_samples = FRAME

    def push(self, pcm: Pcm) -> float:
        return float(np.abs(pcm).max() >= 500)

    def reset(self) -> None:
        pass


class LoudVads:
    name = "loud"

    def open(self) -> Vad:
        return LoudVad()


def words_of(pcm: Pcm) -> str:
    """Each run of one level is a word."""
    levels = [int(np.abs(pcm[i : i + FRAME]).max()) for i in range(0, len(pcm), FRAME)]
    words = [WORDS.get(level, "") for level in levels]
    runs = [word for before, word in zip(["", *words], words, strict=False) if word != before]
    return " ".join(word for word in runs if word)


class LevelAsr:
    """Hears levels; takes `delay_s` per decode; fails while `broken`."""

    def __init__(
        self, delay_s: float = 0.05, *, is_incremental: bool = False, language: str = "en"
    ) -> None:
        self.info = AsrInfo("level", "level", (language,), 4, is_incremental)
        self.delay_s = delay_s
        self.broken = False
        self.decoded: list[tuple[Priority, float]] = []
        self.forgotten: list[str] = []

    async def decode(self, item: AsrItem, priority: Priority) -> AsrResult:
        await asyncio.sleep(self.delay_s)
        if self.broken:
            raise EngineError("asr", "level", "broken on purpose")
        self.decoded.append((priority, len(item.pcm) / ASR_RATE_HZ))
        text = words_of(item.pcm)
        if text == "noise":
            return AsrResult("", 0.1, self.info.languages[0], is_rejected=True)
        return AsrResult(text, 0.9, self.info.languages[0])

    def forget(self, utterance: str) -> None:
        self.forgotten.append(utterance)


class EchoLlm:
    """Says what it heard, word by word; `tool X` calls X first. Remembers whether it was closed."""

    name = "echo"
    languages: tuple[str, ...] = ("en", "de")

    def __init__(self, word_s: float = 0.02, ending: str = ".") -> None:
        self.word_s, self.ending = word_s, ending
        self.closed_early = 0
        self.asked: list[list[Message]] = []
        self.languages_asked: list[str] = []
        self.fails = False

    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        self.asked.append(list(messages))
        self.languages_asked.append(language)
        last = messages[-1] if messages else Message("user", "nothing")
        if self.fails:
            raise EngineError("llm", "echo", "fails on purpose")
        if last.role == "user" and last.text == "four":
            yield ToolCall("call_1", "add", {"a": 2, "b": 2})
            return
        answer = f"it is {json.loads(last.text)['sum']}" if last.role == "tool" else last.text
        complete = False
        try:
            for word in f"you said {answer}{self.ending}".split():
                await asyncio.sleep(self.word_s)
                yield TextDelta(word + " ")
            complete = True
        finally:
            self.closed_early += not complete


class ToneTts:
    """A second of tone per clause, in 100 ms pieces, each made in 10 ms."""

    info = TtsInfo("tone", 24_000, {"en": ("low", "high"), "de": ("tief",)})

    def __init__(self, clause_ms: int = 1000) -> None:
        self.clause_ms = clause_ms
        self.closed_early = 0
        self.fails = False

    async def speak(
        self, text: AsyncIterable[str], *, language: str, voice: str | None = None, speed: float = 1
    ) -> AsyncGenerator[AudioFrame, None]:
        start = 0
        complete = False
        try:
            async for _ in text:
                if self.fails:
                    raise EngineError("tts", "tone", "fails on purpose")
                for _ in range(self.clause_ms // 100):
                    await asyncio.sleep(0.01)
                    yield AudioFrame(np.full(2400, 9000, np.int16), 24_000, start)
                    start += 2400
            complete = True
        finally:
            self.closed_early += not complete


class Adder:
    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        return [ToolSpec("add", "Adds.", {"type": "object"}, is_read_only=True)]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        return ToolOutcome({"sum": arguments["a"] + arguments["b"]})


@dataclass
class World:
    """Everything a session needs, and the handles to watch it by."""

    asr: LevelAsr = field(default_factory=LevelAsr)
    llm: EchoLlm = field(default_factory=EchoLlm)
    tts: ToneTts = field(default_factory=ToneTts)
    metrics: Counts = field(default_factory=Counts)
    conversations: Conversations = field(default_factory=Conversations)
    logs_words: bool = False

    def surroundings(self) -> Surroundings:
        engines = EngineSet(
            LoudVads(),
            asr={"default": self.asr, "level": self.asr},
            llm={"default": self.llm, "echo": self.llm},
            tts={"default": self.tts, "tone": self.tts},
        )
        return Surroundings(
            engines,
            Toolbox([Adder()], self.metrics),
            LoopClock(),
            self.metrics,
            logs_words=self.logs_words,
        )


async def speak(session: Session, *script: tuple[int, int]) -> None:
    """Feed (level, ms) runs in real time, frame by frame, and pull what the session plays."""
    for level, duration_ms in script:
        for _ in range(duration_ms // 20):
            await asyncio.sleep(0.02)
            session.feed(AudioFrame(np.full(FRAME, level, np.int16), ASR_RATE_HZ, 0))
            session.pull()


async def collect(session: Session, into: list[SessionEvent]) -> None:
    async for event in session.events:
        into += [event]


def names(events: Sequence[SessionEvent]) -> list[str]:
    """Event names, runs of the same one joined."""
    out: list[str] = []
    for event in events:
        name = type(event).__name__
        if not out or out[-1] != name:
            out.append(name)
    return out
