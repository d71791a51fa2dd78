"""Classification of speech and noise over an answer, by a whole session in virtual time.

Voice activity detection, recogniser and decision are the real ones; the answer is a tone in
headphones.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from bench.client.microphone import RATE_HZ
from bench.measurements.material.noisy_clips import in_quiet_room
from bench.measurements.material.overlap_clips import KINDS, OverlapClip, OverlapKind, overlaps
from bench.server.stub_engines import tts
from bench.server.stub_engines.scheduled_asr import NullMetrics, RunningLoopClock
from bench.tools.clips import LEAD_MS, synthesise
from bench.tools.virtual_time import run_virtual
from core.audio import ASR_RATE_HZ, PTIME_MS, Pcm, ms_to_samples, silence
from core.conversation.events import PlayoutCleared, SessionEvent, TranscriptionCompleted
from core.conversation.usage import TokenUsage
from core.ports import ToolSpec
from engines.base import (
    AS_CONFIGURED,
    AsrItem,
    AsrModel,
    AsrResult,
    Llm,
    LlmOptions,
    Message,
    TextDelta,
    ToolCall,
    VadEngine,
)
from engines.registry import load
from media.pcm import Framer
from media.resample import Resampler
from pipeline.conversation.conversation import Conversations
from pipeline.response.planner import CommandModel
from pipeline.services import EngineSet, SessionServices
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import DEFAULT, ResponseRequest, SessionSettings, TurnDetection
from pipeline.tools.toolbox import Toolbox
from serving.asr.scheduling import DecodePriority

ANSWER = "All the lights in the kitchen are on now."
ANSWER_MS = 6000
"Length of the answer's sound."

BEFORE_MS = 1500
"Length of the answer before the sound over it."
AFTER_MS = 2500
"Silence after the sound, in which the decision is made."

LONGEST_FRAME_S = 1.5 * PTIME_MS / 1000
"A longer interval between two frames counts as a pause."

OverlapOutcome = Literal["not noticed", "resumed", "cancelled"]
"Effect of a sound on the answer. resumed: it paused and went on."

OUTCOMES: tuple[OverlapOutcome, ...] = ("not noticed", "resumed", "cancelled")


@dataclass(frozen=True, slots=True)
class OverlapResult:
    """Effect of one sound on the answer."""

    overlap: OverlapClip
    outcome: OverlapOutcome
    pause_ms: int
    "Resumed: the longest time without a frame. Cancelled: from the first pause to the end."
    words: str
    "The transcript at the client; empty for sound that was taken for noise."


def processor_time_s() -> float:
    """Returns the processor time of this process: other load of the machine does not change it."""
    return time.process_time()


class VirtualTimeRecogniser:
    """`Recogniser` in this process: a decode takes as much virtual time as it cost by `clock`."""

    def __init__(self, model: AsrModel, clock: Callable[[], float] = processor_time_s) -> None:
        self.info = model.info
        self._model, self._clock = model, clock

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        began = self._clock()
        result = self._model.decode([item])[0]
        await asyncio.sleep(self._clock() - began)
        return result

    def forget(self, utterance: str) -> None:
        self._model.forget(utterance)

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()

    def admit(self, priority: DecodePriority) -> None: ...

    def promote(self, utterance: str) -> None: ...


@dataclass(frozen=True, slots=True)
class InProcessEngines:
    """The engines of a server, in this process."""

    vad: VadEngine
    recogniser: VirtualTimeRecogniser
    assistant: Llm


def load_engines(asr: str = "pocketsphinx", model: str = "") -> InProcessEngines:
    """Loads the engines of a server without settings, or another recogniser. Raises EngineError."""
    recogniser: AsrModel = load("asr", asr, {"model": model} if model else {})
    return InProcessEngines(
        load("vad", "gated", {}), VirtualTimeRecogniser(recogniser), load("llm", "intents", {})
    )


def synthetic() -> Iterator[OverlapClip]:
    """Yields all clips, spoken by eSpeak. Raises EngineMissing."""
    return overlaps(_speech)


def _speech(text: str, voice: str) -> Pcm:
    resampler = Resampler(RATE_HZ, ASR_RATE_HZ)
    parts = [resampler.push(synthesise(text, voice)), resampler.flush()]
    return np.concatenate(parts)[ms_to_samples(LEAD_MS, ASR_RATE_HZ) :]


class LongAnswerLlm:
    """Language model whose answer is long, and which understands the commands that `assistant`
    understands."""

    name = "talkative"
    languages: tuple[str, ...] = ()
    context_tokens: int | None = None

    def __init__(self, assistant: Llm) -> None:
        self._assistant = assistant

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall | TokenUsage, None]:
        """See `Llm.reply`."""
        yield TextDelta(ANSWER)

    async def understands(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        """See `CommandModel.understands`."""
        assert isinstance(self._assistant, CommandModel)
        return await self._assistant.understands(messages, tools, language=language)

    async def may_become_command(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        """See `CommandModel.may_become_command`."""
        assert isinstance(self._assistant, CommandModel)
        return await self._assistant.may_become_command(messages, tools, language=language)


def classify(overlap: OverlapClip, loaded: InProcessEngines) -> OverlapResult:
    """Plays one clip over an answer of its own and returns the result."""
    found: list[OverlapResult] = []

    async def main() -> None:
        found.append(await _classify(overlap, loaded))

    run_virtual(main())
    return found[0]


async def _classify(overlap: OverlapClip, loaded: InProcessEngines) -> OverlapResult:
    engines = EngineSet(
        loaded.vad,
        {DEFAULT: loaded.recogniser},
        {DEFAULT: LongAnswerLlm(loaded.assistant)},
        {DEFAULT: tts.create(tts.Settings(tone_ms=ANSWER_MS))},
    )
    services = SessionServices(
        engines, Toolbox([], NullMetrics()), RunningLoopClock(), NullMetrics()
    )
    page_settings = SessionSettings(turn_detection=TurnDetection(kind="semantic_vad"))
    events: list[tuple[float, SessionEvent]] = []
    opened = Sessions(services, Conversations(), 1).open(page_settings, paced_by="server")
    async with opened as session, asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(_read(session, events), name="overlap-events")
        session.create_response(ResponseRequest())
        frame_times = await _speak_over(session, overlap.pcm)
        reading.cancel()
    words = " ".join(
        event.transcript for _, event in events if isinstance(event, TranscriptionCompleted)
    )
    ended = next((at for at, event in events if isinstance(event, PlayoutCleared)), None)
    gaps = [
        (before, after)
        for before, after in pairwise(frame_times)
        if after - before > LONGEST_FRAME_S
    ]
    if ended is not None:
        paused = min(
            [before for before, _ in gaps] + [max(at for at in frame_times if at <= ended)]
        )
        return OverlapResult(overlap, "cancelled", _ms(ended - paused), words)
    if not gaps:
        return OverlapResult(overlap, "not noticed", 0, words)
    pause_s = max(after - before for before, after in gaps) - PTIME_MS / 1000
    return OverlapResult(overlap, "resumed", _ms(pause_s), words)


async def _speak_over(session: Session, pcm: Pcm) -> list[float]:
    """Sends the audio and returns the times at which a frame of the answer came."""
    loop = asyncio.get_running_loop()
    frame_times: list[float] = []
    quiet = [silence(ms, ASR_RATE_HZ) for ms in (BEFORE_MS, AFTER_MS)]
    heard = in_quiet_room(np.concatenate([quiet[0], pcm, quiet[1]]))
    for frame in Framer(ASR_RATE_HZ).push(heard):
        await asyncio.sleep(PTIME_MS / 1000)
        session.feed(frame)
        if session.pull() is not None:
            frame_times.append(loop.time())
    return frame_times


async def _read(session: Session, into: list[tuple[float, SessionEvent]]) -> None:
    loop = asyncio.get_running_loop()
    async for event in session.events:
        into += [(loop.time(), event)]


def confusion(results: Sequence[OverlapResult]) -> Iterator[str]:
    """Yields the lines of a table: kinds of sound, by their effect on the answer."""
    yield f"| over the answer | clips | {' | '.join(OUTCOMES)} | pause, median | longest |"
    yield "|---|---|---|---|---|---|---|"
    for kind in KINDS:
        of_kind = [result for result in results if result.overlap.kind == kind]
        counts = Counter(result.outcome for result in of_kind)
        pauses = sorted(result.pause_ms for result in of_kind if result.outcome == "resumed")
        shown = f"{pauses[len(pauses) // 2]} ms | {pauses[-1]} ms" if pauses else "- | -"
        columns = " | ".join(str(counts[outcome]) for outcome in OUTCOMES)
        yield f"| {kind} (synthetic) | {len(of_kind)} | {columns} | {shown} |"


def right(results: Iterable[OverlapResult], kind: OverlapKind) -> float:
    """Returns the share of clips of this kind with the right effect on the answer."""
    of_kind = [result for result in results if result.overlap.kind == kind]
    good = [(result.outcome == "cancelled") == (kind == "interruption") for result in of_kind]
    return sum(good) / len(good)


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
