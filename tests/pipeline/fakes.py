"""Scripted engines for tests in virtual time. Loud samples are speech, and their level stands for a
word."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from core.conversation.events import SessionEvent
from core.errors import EngineError, OverloadedError
from core.ports import ToolContext, ToolOutcome, ToolProvider, ToolSpec
from engines.base import (
    AS_CONFIGURED,
    AsrInfo,
    AsrItem,
    AsrResult,
    CallDelta,
    EndOfTurnDetector,
    LlmOptions,
    Message,
    Segment,
    TextDelta,
    ToolCall,
    TtsInfo,
    Vad,
    VadEngine,
    Word,
    WordMark,
)
from pipeline.conversation.conversation import Conversations
from pipeline.response.speculation import count_waste
from pipeline.services import ApplyProfile, EngineSet, SessionServices
from pipeline.session.session import Session
from pipeline.tools.guards import NO_GUARDS, Guards
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.no_speech import NoSpeechMode
from serving.asr.scheduling import DecodePriority
from serving.scheduling.llm_slots import DraftBudget
from serving.speaker.recognition import SpeakerRecognition

FRAME = 320
WORDS = {
    1000: "one",
    2000: "two",
    3000: "three",
    4000: "four",
    5000: "noise",
    6000: "uh-huh",
    7000: "stop",
}


class LoopClock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@dataclass
class ManualClock:
    """A clock that a test sets. It starts on a Saturday evening, at 19:43."""

    seconds: float = 0.0
    today: datetime = datetime(2026, 11, 21, 19, 43, tzinfo=UTC)

    def now(self) -> float:
        return self.seconds

    def wall(self) -> datetime:
        return self.today


@dataclass
class Counts:
    """Metrics whose values tests can read."""

    counts: dict[str, float] = field(default_factory=dict)
    "Values by name, and by name and label: `turns`, `turns:answered`."
    observed: dict[str, list[float]] = field(default_factory=dict)
    labelled: dict[str, list[float]] = field(default_factory=dict)
    "Observations by name and label."

    def count(self, name: str, value: float = 1, /, **labels: str) -> None:
        for key in (name, *(f"{name}:{label}" for label in labels.values())):
            self.counts[key] = self.counts.get(key, 0) + value

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        self.observed.setdefault(name, []).append(seconds)
        for label in labels.values():
            self.labelled.setdefault(f"{name}:{label}", []).append(seconds)

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


def runs_of(pcm: Pcm) -> list[Word]:
    """Returns each run of one level as a word, with times to the frame."""
    levels = np.abs(pcm[::FRAME])
    edges = [0, *(np.flatnonzero(np.diff(levels)) + 1), len(levels)] if len(levels) else []
    runs = [(WORDS.get(int(levels[a]), ""), int(a), int(b)) for a, b in pairwise(edges)]
    return [Word(text, 20 * a, min(20 * b, len(pcm) / 16), 0.9) for text, a, b in runs if text]


def words_of(pcm: Pcm) -> str:
    return " ".join(word.text for word in runs_of(pcm))


class LevelAsr:
    """A recogniser that reads words from levels. It takes `delay_s` per decode, fails while
    `broken` and refuses the priorities in `refuses`."""

    def __init__(
        self,
        delay_s: float = 0.05,
        *,
        is_incremental: bool = False,
        language: str = "en",
        languages: tuple[str, ...] = (),
        window_ms: float | None = None,
        supports: tuple[str, ...] = (),
    ) -> None:
        self.info = AsrInfo(
            "level", "level", languages or (language,), 4, is_incremental, window_ms, supports
        )
        self.delay_s = delay_s
        self.broken = False
        self.refuses: frozenset[DecodePriority] = frozenset()
        self.full_for: frozenset[DecodePriority] = frozenset()
        "The priorities that admit() refuses."
        self.asked: list[tuple[float, DecodePriority, AsrItem]] = []
        "Requests of decoding, each with its time."
        self.decoded: list[tuple[DecodePriority, float]] = []
        self.forgotten: list[str] = []
        self.hurried: list[tuple[float, str]] = []
        "Utterances that became urgent, each with the time."
        self.running = self.most_running = 0

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        assert len(item.pcm) <= (self.info.window_ms or 1e9) * 16
        self.asked.append((asyncio.get_running_loop().time(), priority, item))
        if priority in self.refuses:
            raise OverloadedError("refused on purpose", retry_after_s=1, code="engine_busy")
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self.running -= 1
        if self.broken:
            raise EngineError("asr", "level", "broken on purpose")
        self.decoded.append((priority, len(item.pcm) / ASR_RATE_HZ))
        words = tuple(runs_of(item.pcm))
        text = " ".join(word.text for word in words)
        language = item.options.language or self.info.languages[-1]
        if text == "noise":
            return AsrResult("", 0.1, language, is_rejected=True)
        segments = (Segment(text, words[0].start_ms, words[-1].end_ms),) if words else ()
        return AsrResult(text, 0.9, language, words, segments=segments)

    def forget(self, utterance: str) -> None:
        self.forgotten.append(utterance)

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()

    def admit(self, priority: DecodePriority) -> None:
        if priority in self.full_for:
            raise OverloadedError("refused on purpose", retry_after_s=1, code="engine_busy")

    def promote(self, utterance: str) -> None:
        self.hurried.append((asyncio.get_running_loop().time(), utterance))


class EchoLlm:
    """A model that repeats the question word by word; for "four" it first calls `add`. It counts
    replies that were closed early."""

    name = "echo"
    languages: tuple[str, ...] = ("en", "de")
    context_tokens: int | None = None

    def __init__(self, word_s: float = 0.02, ending: str = ".") -> None:
        self.word_s, self.ending = word_s, ending
        self.closed_early = 0
        self.asked: list[list[Message]] = []
        self.languages_asked: list[str] = []
        self.options_asked: list[LlmOptions] = []
        self.tools_asked: list[Sequence[ToolSpec]] = []
        self.fails = False

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall, None]:
        self.asked.append(list(messages))
        self.languages_asked.append(language)
        self.options_asked.append(options)
        self.tools_asked.append(tools)
        last = messages[-1] if messages else Message("user", "nothing")
        if self.fails:
            raise EngineError("llm", "echo", "fails on purpose")
        if last.role == "user" and last.text == "four":
            yield ToolCall("call_1", "add", {"a": 2, "b": 2})
            return
        answer = f"it is {json.loads(last.text).get('sum')}" if last.role == "tool" else last.text
        complete = False
        try:
            for word in f"you said {answer}{self.ending}".split():
                await asyncio.sleep(self.word_s)
                yield TextDelta(word + " ")
            complete = True
        finally:
            self.closed_early += not complete


class ToneTts:
    """A voice that speaks a second of tone per clause, in pieces of 100 ms, each made in 10 ms."""

    info = TtsInfo("tone", 24_000, {"en": ("low", "high"), "de": ("tief",)})

    def __init__(self, clause_ms: int = 1000) -> None:
        self.clause_ms = clause_ms
        self.closed_early = 0
        self.fails = False
        self.voices_asked: list[str | None] = []

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        start = 0
        complete = False
        self.voices_asked.append(voice)
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
    """Everything that a session needs, with handles for observing it."""

    asr: LevelAsr = field(default_factory=LevelAsr)
    llm: EchoLlm = field(default_factory=EchoLlm)
    tts: ToneTts = field(default_factory=ToneTts)
    spare: ToneTts | None = None
    "A second voice."
    metrics: Counts = field(default_factory=Counts)
    conversations: Conversations = field(default_factory=Conversations)
    logs_words: bool = False
    providers: Sequence[ToolProvider] = field(default_factory=lambda: [Adder()])
    offers_all_tools: bool = True
    drafts: DraftBudget = field(default_factory=DraftBudget)
    endpoint: EndOfTurnDetector | None = None
    vad: VadEngine = field(default_factory=LoudVads)
    no_speech: NoSpeechMode = "normal"
    speakers: SpeakerRecognition | None = None
    guards: Guards = NO_GUARDS
    apply_profile: ApplyProfile = field(default=lambda _, settings: settings)

    def services(self) -> SessionServices:
        spare = {} if self.spare is None else {"spare": self.spare}
        engines = EngineSet(
            self.vad,
            asr={"default": self.asr, "level": self.asr},
            llm={"default": self.llm, "echo": self.llm},
            tts={"default": self.tts, "tone": self.tts} | spare,
            endpoint=self.endpoint,
            on_wasted=partial(count_waste, self.metrics, "recognition"),
            no_speech=self.no_speech,
        )
        return SessionServices(
            engines,
            Toolbox(
                self.providers,
                self.metrics,
                offers_all=self.offers_all_tools,
                guards=self.guards,
            ),
            LoopClock(),
            self.metrics,
            logs_words=self.logs_words,
            drafts=self.drafts,
            speakers=self.speakers,
            codes=self.guards.codes(),
            apply_profile=self.apply_profile,
        )


async def speak(session: Session, *script: tuple[int, int]) -> None:
    """Feeds runs of (level, ms) in real time, frame by frame, and pulls what the session plays."""
    for level, duration_ms in script:
        for _ in range(duration_ms // 20):
            await asyncio.sleep(0.02)
            session.feed(AudioFrame(np.full(FRAME, level, np.int16), ASR_RATE_HZ, 0))
            session.pull()


async def collect(session: Session, into: list[SessionEvent]) -> None:
    async for event in session.events:
        into += [event]


def names(events: Sequence[SessionEvent]) -> list[str]:
    """Returns the names of events, with runs of the same name joined."""
    out: list[str] = []
    for event in events:
        name = type(event).__name__
        if not out or out[-1] != name:
            out.append(name)
    return out


@dataclass
class Kept:
    records: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    def write(self, record: Mapping[str, Any]) -> None:
        json.dumps(record)
        self.records.append(record)

    def names(self) -> list[str]:
        return [record["event"] for record in self.records]
