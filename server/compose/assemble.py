"""Composition root: builds engines, pipeline and doors of one server process and wires them
together."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from core.http.routes import Route
from core.ports import Clock, Metrics, ToolContext, ToolProvider, TraceSink
from devices.wyoming.door import WyomingDoor
from pipeline.conversation.conversation import Conversations
from pipeline.response.speculation import count_waste
from pipeline.services import SessionServices
from pipeline.session.one_shot import OneShotResponses
from pipeline.session.sessions import Sessions
from pipeline.shared.prompts import PromptLibrary
from pipeline.speech.file import SpeechFiles
from pipeline.tools.home import DemoHome, HomeConfig, default_home
from pipeline.tools.skills import ClockTools, HomeControls, HomeTools, ListTools, Timers, TimerTools
from pipeline.tools.toolbox import Toolbox, ToolOverride
from pipeline.transcription.recording import Transcriber
from server.compose.devices import DeviceServices, known_devices
from server.compose.doors import Backend, open_doors
from server.compose.engines import Engines, run_engines
from server.compose.home_assistant import run_home_assistant
from server.compose.plugins import OpenedDoor, choose_plugins, log_unused_plugins
from server.compose.prompt_size import instructions_of
from server.compose.tools import configured_tools
from server.config import Config
from server.runtime.clock import SystemClock, open_trace
from server.runtime.idle_gc import collect_when_idle
from serving.llm_slots import DraftBudget
from serving.workers.file_decoder import DecoderProcess

logger = logging.getLogger(__name__)


class Drainable(Protocol):
    """Part of the server that can finish its running work before the server stops."""

    async def drain(self) -> None:
        """Accepts no new work and waits until the running work is done."""
        ...


@dataclass(frozen=True, slots=True)
class DrainGroup:
    """Sessions and other work that the server finishes before it stops."""

    _sessions: Sessions
    _others: tuple[Drainable, ...]

    @property
    def count(self) -> int:
        """Number of live sessions."""
        return self._sessions.count

    async def drain(self, timeout_s: float) -> None:
        """Accepts no new work, lets turns, recordings and responses finish, then ends all sessions.
        `timeout_s`: longest wait, in seconds. What is not done by then is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sessions.drain(timeout_s))
            others = [tasks.create_task(other.drain()) for other in self._others]
            await asyncio.wait(others, timeout=timeout_s)
            for other in others:
                other.cancel()


@dataclass(frozen=True, slots=True)
class ServerAssembly:
    """Parts of a running server that the listeners need: routes, doors and their state."""

    routes: tuple[Route, ...]
    willow_routes: tuple[Route, ...]
    "Routes of Willow's inference server. The main listener and Willow's own listeners serve them."
    was_routes: tuple[Route, ...]
    "Routes of Willow's application server. Only its own listener serves them."
    plugin_doors: Sequence[OpenedDoor]
    "Doors of other packages, served by the main listener."
    wyoming: WyomingDoor
    work: DrainGroup
    sessions: Sessions
    is_loaded: Callable[[], bool]
    "True while the default recogniser is loaded. A crashed one is started again."
    loaded: Callable[[], Mapping[str, str]]
    "Returns the name of the serving engine for each kind of engine."


@asynccontextmanager
async def assemble(
    config: Config,
    metrics: Metrics,
    sink: TraceSink | None = None,
    tool_override: ToolOverride | None = None,
) -> AsyncIterator[ServerAssembly]:
    """Yields the parts of a working server; leaving the context ends every task and worker.

    `sink`: receives the trace instead of the configured file. `tool_override`: replaces tool calls,
    see `Toolbox`.

    Raises EngineMissing or ConfigError, possibly inside an ExceptionGroup because a TaskGroup is
    involved.
    """
    clock = SystemClock()
    home = DemoHome(_demo_home(config), language=config.language)
    conversations = Conversations()
    async with AsyncExitStack() as stack:
        devices = await stack.enter_async_context(known_devices(config, clock, conversations))
        timers = Timers(home, clock, devices.announcements)
        skills, demo_house = _tools(home, timers, clock), HomeTools(home)
        # Names of built-in tools are reserved: a tool of another package must not take one.
        reserved_names = _names((demo_house, *skills), config.language)
        await asyncio.to_thread(log_unused_plugins, config)
        configured = await stack.enter_async_context(configured_tools(config.tools, reserved_names))
        door_plugins = await asyncio.to_thread(choose_plugins, "earshot.doors", config.doors)
        for one in door_plugins:
            logger.info("door of %s", one.label)
        home_assistant = await stack.enter_async_context(
            run_home_assistant(config.home_assistant, home, clock, metrics)
        )
        home_tools = (demo_house,) if home_assistant is None else home_assistant.providers
        providers = (*home_tools, *skills, devices.tools, *configured)
        timeout_s = config.tools.timeout_s
        offers_all = config.tools.offered == "all"
        toolbox = Toolbox(
            providers, metrics, timeout_s=timeout_s, override=tool_override, offers_all=offers_all
        )
        trace = sink or stack.enter_context(open_trace(config.trace.path))
        engines = await stack.enter_async_context(run_engines(config, toolbox, clock, metrics))
        session_services = _session_services(config, engines, toolbox, clock, metrics, trace)
        if home_assistant is not None:
            # Recognisers expect the names of Home Assistant's devices and rooms.
            expecting = replace(session_services.engines, expected_names=home_assistant.keywords)
            session_services = replace(session_services, engines=expecting)
        switch = None if home_assistant is None else home_assistant.switch
        controls = HomeControls(home, timers, switch)
        core = _core(config, engines, session_services, conversations, home, controls, devices)
        doors = open_doors(core, door_plugins)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        work = [tasks.create_task(timers.run(), name="timers")]
        work += [tasks.create_task(devices.announcements.run(), name="announcements")]
        work += [tasks.create_task(devices.registry.run(), name="devices-news")]
        work += [tasks.create_task(collect_when_idle(core.sessions), name="tidy")]
        work += [tasks.create_task(run(), name=name) for name, run in doors.runs.items()]
        yield ServerAssembly(
            routes=doors.routes,
            willow_routes=doors.willow_routes,
            was_routes=doors.was_routes,
            plugin_doors=doors.plugins,
            wyoming=doors.wyoming,
            sessions=core.sessions,
            work=DrainGroup(
                core.sessions, (core.transcriber, core.speech_files, core.one_shot_responses)
            ),
            is_loaded=engines.is_loaded,
            loaded=engines.names,
        )
        for task in work:
            task.cancel()


def _session_services(
    config: Config,
    engines: Engines,
    toolbox: Toolbox,
    clock: Clock,
    metrics: Metrics,
    trace: TraceSink | None,
) -> SessionServices:
    """Builds the services that every session uses."""
    engine_set = engines.engine_set(config.language, is_strict=config.models.strict)
    return SessionServices(
        replace(
            engine_set,
            on_wasted=partial(count_waste, metrics, "recognition"),
            no_speech=config.asr.no_speech,
        ),
        toolbox,
        clock,
        metrics,
        trace,
        traces_words=config.trace.transcripts,
        traces_sound=config.trace.audio,
        logs_words=config.log.transcripts,
        drafts=DraftBudget(config.turn.max_drafts),
        instructions=instructions_of(config),
        mcp_policy=config.realtime.as_policy(),
    )


def _core(
    config: Config,
    engines: Engines,
    session_services: SessionServices,
    conversations: Conversations,
    home: DemoHome,
    home_controls: HomeControls,
    devices: DeviceServices,
) -> Backend:
    """Builds the services that the doors share."""
    prompts = PromptLibrary({name: one.as_stored() for name, one in config.prompts.items()})
    session_settings = config.assistant.settings(config.turn.as_turn_detection())
    initial_settings = replace(session_settings, prompts=prompts)
    return Backend(
        config=config,
        engines=engines,
        session_services=session_services,
        home=home,
        home_controls=home_controls,
        devices=devices,
        initial_settings=initial_settings,
        conversations=conversations,
        sessions=Sessions(session_services, conversations, config.server.max_sessions),
        transcriber=Transcriber(session_services.engines),
        speech_files=SpeechFiles(session_services.engines),
        languages=engines.languages,
        one_shot_responses=OneShotResponses(
            session_services, conversations, engines.languages, default_settings=initial_settings
        ),
        decoder=DecoderProcess(session_services.metrics),
    )


def _tools(home: DemoHome, timers: Timers, clock: Clock) -> list[ToolProvider]:
    return [ListTools(home), TimerTools(timers), ClockTools(clock)]


def _names(providers: Sequence[ToolProvider], language: str) -> frozenset[str]:
    context = ToolContext("", language)
    return frozenset(spec.name for one in providers for spec in one.tools(context))


def _demo_home(config: Config) -> HomeConfig:
    """Returns the demo home's devices; none if Home Assistant is configured, which takes their
    place. The demo home still holds the shopping list then."""
    if config.home_assistant.url:
        return HomeConfig()
    return config.home or default_home()
