"""The composition root: engines, pipeline and doors, wired together for one process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from core.http import Route
from core.ports import Clock, Metrics, ToolProvider
from pipeline.conversation import Conversations
from pipeline.home import Home, default_home
from pipeline.sessions import Sessions
from pipeline.settings import SessionSettings
from pipeline.skills import ClockTools, HomeTools, ListTools, Timers, TimerTools
from pipeline.surroundings import Surroundings
from pipeline.tools import Toolbox
from server.config import Config
from server.edge import Contained
from server.engines import running
from server.system import SystemClock, open_trace
from signaling.realtime.door import RealtimeDoor, RealtimeSettings
from signaling.routes import routes as realtime_routes
from web.routes import PageDoor
from web.routes import routes as page_routes


class LiveSessions(Protocol):
    """What the server itself wants of the sessions."""

    @property
    def count(self) -> int: ...

    async def drain(self, timeout_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything behind the listener."""

    routes: tuple[Route, ...]
    sessions: LiveSessions
    is_loaded: Callable[[], bool]
    "Whether every model is there now; a crashed one comes back."
    loaded: Callable[[], Mapping[str, str]]
    "Kind of engine -> what serves it."


@asynccontextmanager
async def assemble(config: Config, metrics: Metrics) -> AsyncIterator[Parts]:
    """A working server's parts while the body runs; leaving it ends every task and worker.

    Raises EngineMissing, ConfigError; from a TaskGroup, so possibly as an ExceptionGroup.
    """
    clock = SystemClock()
    home = Home(config.home or default_home(), language=config.language)
    conversations = Conversations()
    timers = Timers(home, clock, conversations)
    toolbox = Toolbox(_tools(home, timers, clock), metrics)
    async with AsyncExitStack() as stack:
        trace = stack.enter_context(open_trace(config.trace.path))
        engines = await stack.enter_async_context(running(config, toolbox, clock, metrics))
        surroundings = Surroundings(
            engines.engine_set(config.language),
            toolbox,
            clock,
            metrics,
            trace,
            traces_words=config.trace.transcripts,
            logs_words=config.log.transcripts,
        )
        sessions = Sessions(surroundings, conversations, config.server.max_sessions)
        door = _realtime(config, sessions, metrics, home)
        page = PageDoor(home, lambda: engines.report(config.language))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        work = (
            tasks.create_task(timers.run(), name="timers"),
            tasks.create_task(door.run(), name="calls"),
        )
        yield Parts(
            routes=(*page_routes(page), *realtime_routes(door)),
            sessions=sessions,
            is_loaded=engines.is_loaded,
            loaded=engines.names,
        )
        for task in work:
            task.cancel()


def _tools(home: Home, timers: Timers, clock: Clock) -> list[ToolProvider]:
    return [HomeTools(home), ListTools(home), TimerTools(timers), ClockTools(clock)]


def _realtime(config: Config, sessions: Sessions, metrics: Metrics, home: Home) -> RealtimeDoor:
    return RealtimeDoor(
        sessions,
        metrics,
        Contained(metrics),
        home=home,
        settings=RealtimeSettings(
            idle_timeout_s=config.server.idle_timeout_s,
            fresh=SessionSettings(turn_detection=config.turn.as_turn_detection()),
        ),
    )
