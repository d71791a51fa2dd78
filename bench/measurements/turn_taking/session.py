"""One recorded turn in a whole session, in virtual time: where it ended, and how it was answered.

Voice activity detection, endpointing and turn detection are those of the server. The recogniser's
and Smart Turn's results are remembered by the audio that they were computed from, because most of
it is the same with every setting.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from bench.measurements.material.remembered_results import RememberingRecogniser
from bench.measurements.turn_taking.clips import SpokenTurn
from bench.server.stub_engines import llm, tts
from bench.server.stub_engines.scheduled_asr import NullMetrics, RunningLoopClock
from bench.tools.virtual_time import run_virtual
from core.audio import ASR_RATE_HZ, PTIME_MS
from core.conversation.events import (
    InputCommitted,
    ItemDeleted,
    SessionEvent,
    TranscriptionCompleted,
)
from engines.base import EndOfTurnDetector, VadEngine
from media.pcm import Framer
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import DEFAULT, SessionSettings, TurnDetection
from pipeline.tools.toolbox import Toolbox

DECODE_S = 0.1
LLM_MS = 150
TTS_MS = 80
"Set times of the engines, so that no figure depends on the machine."
ANSWER_MS = 1500
"Length of the answer's sound."

AFTER_PAUSE_S = 0.06
"Time after a pause in which an end still belongs to it: a start of speech takes as long."


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """Outcome of one turn."""

    turn: SpokenTurn
    cut_pauses: int
    "Pauses in which the turn was taken for over."
    other_cuts: int
    "Ends within the turn that were in none of the counted pauses."
    delay_ms: float | None
    "From the last sample of speech to the end of the turn; None: it never ended."
    answer_ms: float | None
    "From the last sample of speech to the first frame of the answer; None: there was none."
    answers: int
    "Utterances with words that remained; each is answered. One is right."
    joined: int
    "Utterances that were taken back and joined with what followed."
    interjections: int
    "Cuts after which the answer began to sound before the speaker went on or the turn ended."


@dataclass(slots=True)
class _SessionLog:
    """Events of a session, in samples of the microphone."""

    ends: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    "Position and item of each end of an utterance."
    deleted: set[str] = field(default_factory=set[str])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    frames: list[int] = field(default_factory=list[int])
    "Positions at which a frame of an answer was sent."

    def take(self, at: int, event: SessionEvent) -> None:
        match event:
            case InputCommitted(item_id):
                self.ends.append((at, item_id))
            case ItemDeleted(item_id):
                self.deleted.add(item_id)
            case TranscriptionCompleted(item_id, transcript):
                self.texts[item_id] = transcript
            case _:
                pass


def hear(
    turn: SpokenTurn,
    detection: TurnDetection,
    vad: VadEngine,
    recogniser: RememberingRecogniser,
    endpoint: EndOfTurnDetector | None,
) -> TurnOutcome:
    """Plays one turn to a session of its own and returns what became of it."""
    log = _SessionLog()
    engines = EngineSet(
        vad,
        {DEFAULT: recogniser},
        {DEFAULT: llm.create(llm.Settings(delay_ms=LLM_MS))},
        {DEFAULT: tts.create(tts.Settings(delay_ms=TTS_MS, tone_ms=ANSWER_MS))},
        endpoint=endpoint,
    )
    settings = SessionSettings(turn_detection=detection)
    run_virtual(_play(turn, engines, settings, log))
    return outcome(turn, log.ends, log.deleted, log.texts, log.frames)


async def _play(
    turn: SpokenTurn, engines: EngineSet, settings: SessionSettings, log: _SessionLog
) -> None:
    services = SessionServices(
        engines, Toolbox([], NullMetrics()), RunningLoopClock(), NullMetrics()
    )
    loop = asyncio.get_running_loop()
    opened = Sessions(services, Conversations(), 1).open(settings, paced_by="server")
    async with opened as session, asyncio.TaskGroup() as tasks:
        began = loop.time()

        def position() -> int:
            return round((loop.time() - began) * ASR_RATE_HZ)

        reading = tasks.create_task(_read(session, log, position), name="turn-events")
        for frame in Framer(ASR_RATE_HZ).push(turn.pcm):
            await asyncio.sleep(PTIME_MS / 1000)
            session.feed(frame)
            if session.pull() is not None:
                log.frames.append(position())
        reading.cancel()


async def _read(session: Session, log: _SessionLog, position: Callable[[], int]) -> None:
    async for event in session.events:
        log.take(position(), event)


def outcome(
    turn: SpokenTurn,
    ends: list[tuple[int, str]],
    deleted: set[str],
    texts: dict[str, str],
    frames: list[int],
) -> TurnOutcome:
    """Returns what became of a turn. `ends`: position and item of each end of an utterance;
    `deleted`: items that were taken back; `texts`: transcripts by item; `frames`: positions of the
    answer's frames."""
    margin = round(AFTER_PAUSE_S * ASR_RATE_HZ)
    cuts = [at for at, _ in ends if at < turn.end]
    cut_pauses = {
        (begin, end) for begin, end in turn.pauses for at in cuts if begin <= at <= end + margin
    }
    other_cuts = sum(
        not any(begin <= at <= end + margin for begin, end in turn.pauses) for at in cuts
    )
    over = [at for at, _ in ends if at >= turn.end]
    answered = [at for at in frames if over and at >= over[-1]]
    between = pairwise([*cuts, turn.end])
    return TurnOutcome(
        turn,
        cut_pauses=len(cut_pauses),
        other_cuts=other_cuts,
        delay_ms=_ms(over[-1] - turn.end) if over else None,
        answer_ms=_ms(answered[0] - turn.end) if answered else None,
        answers=sum(bool(texts.get(item)) and item not in deleted for _, item in ends),
        joined=sum(item in deleted for _, item in ends),
        interjections=sum(any(first <= at < last for at in frames) for first, last in between),
    )


def _ms(samples: int) -> float:
    return 1000 * samples / ASR_RATE_HZ
