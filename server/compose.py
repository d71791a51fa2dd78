"""The composition root: engines, pipeline and doors, wired together for one process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from core.http import Route
from core.ports import Clock, Metrics, ToolContext, ToolProvider, ToolSpec
from engines.base import AsrInfo, AsrItem, AsrResult, Llm, Tts, VadEngine
from engines.registry import Kind, load
from pipeline.conversation import Conversations
from pipeline.engines import EngineSet
from pipeline.home import Home, default_home
from pipeline.session import Surroundings
from pipeline.sessions import Sessions
from pipeline.settings import DEFAULT, SessionSettings
from pipeline.skills import ClockTools, HomeTools, ListTools, Timers, TimerTools
from pipeline.tools import Toolbox
from server.config import Config
from server.edge import Contained
from server.engines import Survey, choose_one, report, survey
from server.system import SystemClock, open_trace
from serving.choose import KINDS, Choice
from serving.pools.process import ProcessWorker
from serving.scheduler import AsrScheduler, Priority
from signaling.realtime.door import RealtimeDoor, RealtimeSettings
from signaling.routes import routes as realtime_routes
from web.engines import EnginesReport
from web.routes import PageDoor
from web.routes import routes as page_routes

logger = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True)
class SharedRecogniser:
    """One recognition model as sessions see it: a queue, and what the model told about itself."""

    info: AsrInfo
    _scheduler: AsrScheduler = field(repr=False)

    async def decode(self, item: AsrItem, priority: Priority) -> AsrResult:
        return await self._scheduler.decode(item, priority)

    def forget(self, utterance: str) -> None:
        self._scheduler.forget(utterance)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Engines that are ready, with how they were chosen."""

    vad: VadEngine
    asr: SharedRecogniser
    llm: Llm
    tts: Tts
    choices: Mapping[Kind, Choice]

    def engine_set(self, language: str) -> EngineSet:
        return EngineSet(
            self.vad,
            asr={DEFAULT: self.asr, self.choices["asr"].name: self.asr},
            llm={DEFAULT: self.llm, self.choices["llm"].name: self.llm},
            tts={DEFAULT: self.tts, self.choices["tts"].name: self.tts},
            default_language=language,
        )

    def languages(self) -> Mapping[str, tuple[str, ...]]:
        """Engine -> ISO 639-1 codes it hears, understands or speaks."""
        return {
            self.choices["asr"].name: self.asr.info.languages,
            self.choices["llm"].name: self.llm.languages,
            self.choices["tts"].name: tuple(self.tts.info.voices),
        }


@runtime_checkable
class Warms(Protocol):
    """A language model that is slow the first time unless it is told beforehand."""

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None: ...


@asynccontextmanager
async def assemble(config: Config, metrics: Metrics) -> AsyncIterator[Parts]:
    """A working server's parts while the body runs; leaving it ends every task and worker.

    Raises EngineMissing, ConfigError; from a TaskGroup, so possibly as an ExceptionGroup.
    """
    clock = SystemClock()
    found = await asyncio.to_thread(survey, config.paths.models_dir)
    choices = {kind: choose_one(config, kind, found) for kind in KINDS}
    for choice in choices.values():
        logger.info("%s: %s (%s)", choice.kind, choice.name, choice.why)
    with ExitStack() as stack:
        trace = stack.enter_context(open_trace(config.trace.path))
        async with asyncio.TaskGroup() as tasks:
            worker = ProcessWorker("asr", choices["asr"].name, choices["asr"].options, metrics)
            scheduler = AsrScheduler([worker], clock, metrics)
            running = [tasks.create_task(scheduler.run(), name="asr")]
            loaded = await _load(choices, scheduler)
            home = Home(config.home or default_home(), language=config.language)
            conversations = Conversations()
            timers = Timers(home, clock, conversations)
            running.append(tasks.create_task(timers.run(), name="timers"))
            toolbox = Toolbox(_tools(home, timers, clock), metrics)
            if isinstance(loaded.llm, Warms):
                await loaded.llm.warm(
                    config.language, toolbox.specs(ToolContext("", config.language))
                )
            surroundings = Surroundings(
                loaded.engine_set(config.language),
                toolbox,
                clock,
                metrics,
                trace,
                config.trace.transcripts,
            )
            sessions = Sessions(surroundings, conversations, config.server.max_sessions)
            door = _realtime(config, sessions, metrics, home)
            running.append(tasks.create_task(door.run(), name="calls"))
            page = PageDoor(home, _reporter(loaded, found, surroundings.engines))
            yield Parts(
                routes=(*page_routes(page), *realtime_routes(door)),
                sessions=sessions,
                is_loaded=lambda: worker.pid is not None,
                loaded=lambda: {kind: choice.name for kind, choice in choices.items()},
            )
            for task in running:
                task.cancel()


async def _load(choices: Mapping[Kind, Choice], scheduler: AsrScheduler) -> Loaded:
    """Load side by side: the recogniser in its worker, the rest in threads of this process."""
    vad, llm, tts, info = await asyncio.gather(
        asyncio.to_thread(load, "vad", choices["vad"].name, choices["vad"].options),
        asyncio.to_thread(load, "llm", choices["llm"].name, choices["llm"].options),
        asyncio.to_thread(load, "tts", choices["tts"].name, choices["tts"].options),
        scheduler.ready(),
    )
    return Loaded(vad, SharedRecogniser(info, scheduler), llm, tts, choices)


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


def _reporter(loaded: Loaded, found: Survey, engines: EngineSet) -> Callable[[], EnginesReport]:
    return lambda: report(loaded.choices, found.known, loaded.languages(), engines.languages())
