"""A recorded session's sound through a live session, in real time: fed and played as it was."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from core.audio import ASR_RATE_HZ, PTIME_MS, AudioFrame, ms_to_samples, samples_to_ms
from core.errors import Conflict, RequestError
from core.events import OutputAudioDelta
from pipeline.playout.playout import CLIENT_RATE_HZ
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import ResponseRequest, SessionSettings
from server.commands.replay.tool_stubs import RecordedToolResults
from server.commands.replay.trace_reader import (
    RecordedAction,
    RecordedSession,
    RecordedTruncation,
    RecordedTurn,
    TraceRecord,
    turns,
)
from server.compose.assemble import assemble
from server.config import Config, TraceConfig
from server.runtime.metrics import PrometheusMetrics

logger = logging.getLogger(__name__)

TAIL_S = 10.0
"After its last sample: for the answer to what was said last."

FRAME_SAMPLES = ms_to_samples(PTIME_MS, ASR_RATE_HZ)


@dataclass(slots=True)
class MemoryTraceSink:
    """A `TraceSink` in memory."""

    records: list[TraceRecord] = field(default_factory=list[TraceRecord])

    def write(self, record: Mapping[str, Any]) -> None:
        self.records.append(record)


@dataclass(frozen=True, slots=True)
class ReplayEnvironment:
    """Engines and skills as a server has them, and what the sessions on it tell."""

    sessions: Sessions
    kept: MemoryTraceSink
    rehearsal: RecordedToolResults


@dataclass(slots=True)
class ReplayClient:
    """What a client that plays by itself knows of the answer that sounded last."""

    item_id: str = ""
    samples: int = 0
    "Of its sound, so far."

    def take(self, event: OutputAudioDelta) -> None:
        if event.item_id != self.item_id:
            self.item_id, self.samples = event.item_id, 0
        self.samples += len(event.pcm)

    @property
    def sent_ms(self) -> int:
        return int(samples_to_ms(self.samples, CLIENT_RATE_HZ))


@asynccontextmanager
async def replay_environment(
    config: Config, *, acts: bool = False
) -> AsyncIterator[ReplayEnvironment]:
    """Ready for replays while the body runs. `acts`: tools that change something are called, in the
    real house. Raises EngineMissing, ConfigError; possibly as an ExceptionGroup."""
    kept, rehearsal = MemoryTraceSink(), RecordedToolResults()
    with_words = structs.replace(config, trace=TraceConfig(transcripts=True))
    instead = None if acts else rehearsal.instead
    async with assemble(with_words, PrometheusMetrics(), kept, instead) as parts:
        yield ReplayEnvironment(parts.sessions, kept, rehearsal)


async def replay(
    stage: ReplayEnvironment, session: RecordedSession, speed: float = 1.0
) -> list[RecordedTurn]:
    """Its turns as they come now. `speed`: of the sound; other than 1, times mean little. Without
    effect where the client played by itself: such a one plays by the clock.

    Raises RequestError for settings that cannot be any more.
    """
    settings, paced_by, client = (
        session.settings or SessionSettings(),
        session.paced_by,
        ReplayClient(),
    )
    if paced_by == "client":
        speed = 1.0
    stage.rehearsal.begin(session.called)
    async with (
        stage.sessions.open(
            settings, paced_by=paced_by, place=session.place, door="replay"
        ) as live,
        asyncio.TaskGroup() as tasks,
    ):
        background = [tasks.create_task(_read(live, client), name="replay-events")]
        if paced_by == "server":
            background += [tasks.create_task(_play(live, speed), name="replay-playout")]
        await _speak(live, client, session, speed)
        with suppress(TimeoutError):  # it may have ended in the middle of a word
            async with asyncio.timeout(TAIL_S):
                await live.settled()
        for task in background:
            task.cancel()
    return turns(record for record in stage.kept.records if record["session"] == live.id)


async def _speak(
    live: Session, client: ReplayClient, session: RecordedSession, speed: float
) -> None:
    """Feed it a frame per 20 ms, and do what the client did where it did it."""
    clock, steps = asyncio.get_running_loop().time, list(session.steps)
    began_at = clock()
    for start in range(0, len(session.pcm), FRAME_SAMPLES):
        pcm = session.pcm[start : start + FRAME_SAMPLES]
        await asyncio.sleep(began_at + (start + len(pcm)) / ASR_RATE_HZ / speed - clock())
        while steps and steps[0].at <= start:
            _do(live, client, steps.pop(0))
        live.feed(AudioFrame(pcm, ASR_RATE_HZ, start))
    for step in steps:
        _do(live, client, step)


def _do(live: Session, client: ReplayClient, step: RecordedAction) -> None:
    """What the session refuses now is told by what is missing."""
    try:
        match step.do:
            case SessionSettings() as settings:
                live.configure(settings)
            case RecordedTruncation(audio_end_ms=audio_end_ms):
                live.truncate(client.item_id, min(audio_end_ms, client.sent_ms))
            case "commit":
                live.commit_input()
            case "respond":
                live.create_response(ResponseRequest())
            case "clear":
                live.clear_input()
            case "cancel":
                live.cancel_response()
    except (RequestError, Conflict) as error:
        logger.warning("! replay: %s", error.code)


async def _play(live: Session, speed: float) -> None:
    """Take the answer's sound as a call does: a frame per 20 ms."""
    clock = asyncio.get_running_loop().time
    began_at, tick = clock(), 0
    while True:
        live.pull()
        tick += 1
        await asyncio.sleep(began_at + tick * PTIME_MS / 1000 / speed - clock())


async def _read(live: Session, client: ReplayClient) -> None:
    """Nobody listens to the events, but somebody has to take them."""
    async for event in live.events:
        if isinstance(event, OutputAudioDelta):
            client.take(event)


def unplayable(session: RecordedSession) -> str:
    """Why it cannot be replayed; empty when it can."""
    if not len(session.pcm):
        return "its trace has no sound (trace.audio)"
    if session.settings is None:
        return "its trace does not tell its settings"
    return ""


def chosen(sessions: Sequence[RecordedSession], wanted: Sequence[str]) -> list[RecordedSession]:
    """Those that were named, or all. Raises RequestError for a name that is not there, or when
    there is none."""
    if not sessions:
        raise RequestError("no session in it")
    for name in wanted:
        if name not in {session.id for session in sessions}:
            known = ", ".join(session.id for session in sessions) or "none"
            raise RequestError(f"no session {name!r} in the trace; there are: {known}")
    return [session for session in sessions if not wanted or session.id in wanted]
