"""Plays a recorded session's audio through a live session in real time, as its client did."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from msgspec import structs

from core.audio import ASR_RATE_HZ, PTIME_MS, AudioFrame, ms_to_samples, samples_to_ms
from core.conversation.events import OutputAudioDelta
from core.errors import Conflict, RequestError
from core.ports import ToolOutcome
from engines.base import ToolCall
from pipeline.playout.playout import CLIENT_RATE_HZ
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import ResponseRequest, SessionSettings
from pipeline.tools.calls.results import as_json
from pipeline.tools.skills import HomeTools, ListTools, TimerTools
from pipeline.tools.skills.lists import MINE
from pipeline.tools.toolbox import Tool
from server.commands.replay.trace_reader import (
    RecordedAction,
    RecordedSession,
    RecordedToolCall,
    RecordedTruncation,
    RecordedTurn,
    TraceRecord,
    turns,
)
from server.compose.assemble import assemble
from server.config import Config, TraceConfig
from server.runtime.metrics import PrometheusMetrics

IN_PROCESS_PROVIDERS = (HomeTools, ListTools, TimerTools)
"Providers that only change things inside this process: demo house, lists and timers."

NOT_RUN = as_json(ToolOutcome({"message": "not run in a replay"}, error="not_run_in_replay"))
"Result for the model if a call has no recorded result."


class RecordedToolResults:
    """Recorded tool results of the session that is being replayed."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], deque[str]] = {}

    def begin(self, calls: Iterable[RecordedToolCall]) -> None:
        """Takes the recorded calls of the next session."""
        self._results.clear()
        for call in calls:
            key = call.name, _canonical(call.arguments)
            self._results.setdefault(key, deque()).append(call.output)

    def override(self, call: ToolCall, tool: Tool) -> str | None:
        """Returns the recorded result of the same call, as a `ToolOverride`. Each result is used
        once; without one, the result says that the tool was not run. Returns None for tools that
        only read and for tools of this process: these are really called."""
        is_kept = call.arguments.get("whose") == MINE  # the list of a person is in the database
        is_local = isinstance(tool.provider, IN_PROCESS_PROVIDERS) and not is_kept
        if tool.spec.is_read_only or is_local:
            return None
        if outputs := self._results.get((call.name, _canonical(call.arguments))):
            return outputs.popleft()
        logger.warning("! replay: the tool %s was not run; --act allows it", call.name)
        return NOT_RUN


def _canonical(arguments: Mapping[str, object]) -> str:
    return json.dumps(dict(arguments), sort_keys=True)


logger = logging.getLogger(__name__)

TAIL_S = 10.0
"Time in seconds after the last sample, for the answer to the last utterance."

FRAME_SAMPLES = ms_to_samples(PTIME_MS, ASR_RATE_HZ)
"Samples per frame at the recogniser's rate."


@dataclass(slots=True)
class MemoryTraceSink:
    """Trace sink that keeps the records in memory."""

    records: list[TraceRecord] = field(default_factory=list[TraceRecord])

    def write(self, record: Mapping[str, object]) -> None:
        """Keeps one record."""
        self.records.append(record)


@dataclass(frozen=True, slots=True)
class ReplayEnvironment:
    """Sessions with a server's engines and tools, and the records of their trace."""

    sessions: Sessions
    trace_sink: MemoryTraceSink
    tool_results: RecordedToolResults


@dataclass(slots=True)
class ReplayClient:
    """Client that plays answers by itself; tracks the answer whose audio came last."""

    item_id: str = ""
    "Item of the answer whose audio came last; empty before the first answer."
    samples: int = 0
    "Number of samples received of that answer."

    def take(self, event: OutputAudioDelta) -> None:
        """Counts received audio; a new item starts again from zero."""
        if event.item_id != self.item_id:
            self.item_id, self.samples = event.item_id, 0
        self.samples += len(event.pcm)

    @property
    def sent_ms(self) -> int:
        """Length of the received audio of the current answer, in ms."""
        return int(samples_to_ms(self.samples, CLIENT_RATE_HZ))


@asynccontextmanager
async def replay_environment(
    config: Config, *, runs_tools: bool = False
) -> AsyncIterator[ReplayEnvironment]:
    """Yields an environment for replays. `runs_tools`: tools that change something are called, also
    in the real house. Raises EngineMissing or ConfigError, possibly inside an ExceptionGroup."""
    trace_sink, tool_results = MemoryTraceSink(), RecordedToolResults()
    replay_config = structs.replace(config, trace=TraceConfig(transcripts=True))
    override = None if runs_tools else tool_results.override
    async with assemble(replay_config, PrometheusMetrics(), trace_sink, override) as assembly:
        yield ReplayEnvironment(assembly.sessions, trace_sink, tool_results)


async def replay(
    environment: ReplayEnvironment, session: RecordedSession, speed: float = 1.0
) -> list[RecordedTurn]:
    """Replays a session; returns its turns as they are now.

    `speed`: factor for feeding and playing the audio; other than 1, times mean little. It has no
    effect on a session whose client played by itself: such a client follows the real clock.

    Raises RequestError for settings that are no longer valid.
    """
    settings, paced_by, client = (
        session.settings or SessionSettings(),
        session.paced_by,
        ReplayClient(),
    )
    if paced_by == "client":
        speed = 1.0
    environment.tool_results.begin(session.tool_calls)
    async with (
        environment.sessions.open(
            settings, paced_by=paced_by, place=session.place, door="replay"
        ) as live,
        asyncio.TaskGroup() as tasks,
    ):
        background = [tasks.create_task(_consume_events(live, client), name="replay-events")]
        if paced_by == "server":
            background += [tasks.create_task(_pull_audio(live, speed), name="replay-playout")]
        await _feed_audio(live, client, session, speed)
        with suppress(TimeoutError):  # the recording may have ended in the middle of a word
            async with asyncio.timeout(TAIL_S):
                await live.settled()
        for task in background:
            task.cancel()
    return turns(
        record for record in environment.trace_sink.records if record["session"] == live.id
    )


async def _feed_audio(
    live: Session, client: ReplayClient, session: RecordedSession, speed: float
) -> None:
    """Feeds one frame per 20 ms and repeats the client's actions at their positions."""
    clock, actions = asyncio.get_running_loop().time, list(session.actions)
    began_at_s = clock()
    for start in range(0, len(session.pcm), FRAME_SAMPLES):
        pcm = session.pcm[start : start + FRAME_SAMPLES]
        await asyncio.sleep(began_at_s + (start + len(pcm)) / ASR_RATE_HZ / speed - clock())
        while actions and actions[0].at_sample <= start:
            _repeat_action(live, client, actions.pop(0))
        live.feed(AudioFrame(pcm, ASR_RATE_HZ, start))
    for action in actions:
        _repeat_action(live, client, action)


def _repeat_action(live: Session, client: ReplayClient, action: RecordedAction) -> None:
    """Repeats one action of the client. If the session refuses it now, the difference shows in the
    turns."""
    try:
        match action.action:
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


async def _pull_audio(live: Session, speed: float) -> None:
    """Takes the audio of the answers from the session as a WebRTC call does: one frame per 20
    ms."""
    clock = asyncio.get_running_loop().time
    began_at_s, tick = clock(), 0
    while True:
        live.pull()
        tick += 1
        await asyncio.sleep(began_at_s + tick * PTIME_MS / 1000 / speed - clock())


async def _consume_events(live: Session, client: ReplayClient) -> None:
    """Takes all events of the session, because its queue must not fill up."""
    async for event in live.events:
        if isinstance(event, OutputAudioDelta):
            client.take(event)


def replay_obstacle(session: RecordedSession) -> str:
    """Returns why a session cannot be replayed; empty if it can."""
    if not len(session.pcm):
        return "its trace has no sound (trace.audio)"
    if session.settings is None:
        return "its trace has no settings"
    return ""


def select_sessions(
    sessions: Sequence[RecordedSession], ids: Sequence[str]
) -> list[RecordedSession]:
    """Returns the sessions with these ids, or all if `ids` is empty. Raises RequestError for an
    unknown name or an empty trace."""
    if not sessions:
        raise RequestError("the trace contains no session")
    for name in ids:
        if name not in {session.id for session in sessions}:
            known_ids = ", ".join(session.id for session in sessions) or "none"
            raise RequestError(f"no session {name!r} in the trace; there are: {known_ids}")
    return [session for session in sessions if not ids or session.id in ids]
