"""Composition root: builds engines, pipeline and doors of one server process and wires them
together."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from core.access.limits import PlaceCounter
from core.ports import Clock, Metrics, ToolContext, ToolProvider, TraceSink
from devices.registry.named_keys import NamedKeys
from engines.base import Tts
from pipeline.conversation.conversation import Conversations
from pipeline.conversation.kept_conversation import ConversationKeeper
from pipeline.response.speculation import count_waste
from pipeline.services import EngineSet, SessionServices
from pipeline.session.one_shot import OneShotResponses
from pipeline.session.sessions import Sessions
from pipeline.speech.fallback import FallbackTts
from pipeline.speech.file import SpeechFiles
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.own_voices import OWN_VOICES, OwnVoices, OwnVoiceStore, OwnVoicesTts
from pipeline.tools.guards import Guards
from pipeline.tools.home import Home, HomeConfig, default_home
from pipeline.tools.skills import ClockTools, HomeControls, HomeTools, ListTools, Timers, TimerTools
from pipeline.tools.toolbox import Toolbox, ToolOverride
from pipeline.transcription.recording import Transcriber
from server.compose.backend import Backend
from server.compose.devices import DeviceServices, device_services
from server.compose.doors import Doors, open_doors
from server.compose.engines import Engines, run_engines
from server.compose.home_assistant import run_home_assistant
from server.compose.llm_and_tts import FALLBACK_TTS, warm_other_languages
from server.compose.mcp_server import mcp_server_routes, mcp_tools
from server.compose.plugins import ChosenPlugin, choose_plugins, log_unused_plugins
from server.compose.prompt_size import instructions_of
from server.compose.settings import CallerDefaults, RunningEngines, SessionDefaults
from server.compose.tools import check_guarded_devices, configured_tools, warn_of_unknown_tools
from server.config import Config
from server.runtime.clock import SystemClock, open_trace
from serving.model_host.source import WorkerSource
from serving.scheduling.llm_slots import DraftBudget
from serving.speaker.recognition import SpeakerRecognition
from serving.workers.file_decoder import DecoderProcess
from serving.workers.process_tts import ProcessTts


def with_own_voices(
    engines: EngineSet,
    tts: ProcessTts,
    store: OwnVoiceStore,
    languages: TextLanguageDetector,
    metrics: Metrics,
) -> EngineSet:
    """Returns the engines with one more, whose voices are those of the caller's key. `tts`: the
    engine that speaks them. espeak speaks a clause that it cannot speak."""
    own: Tts = OwnVoicesTts(tts, store)
    if (fallback := engines.tts.get(FALLBACK_TTS)) is not None:
        own = FallbackTts(own, fallback, languages, metrics)
    return replace(engines, tts={**engines.tts, OWN_VOICES: own})


QUIET_S = 2.0
"""Wait after the last session, in seconds. After it the call is closed, and a client that calls
again at once is not delayed by a collection."""


async def collect_when_idle(sessions: Sessions) -> None:
    """Collects garbage whenever the last session has ended, until it is cancelled.

    A finished call leaves reference cycles, some 1 400 objects with aiortc. A full collection stops
    the event loop: 100 ms were measured after 30 calls. Sound of running sessions would have a gap
    that long. On a server that is never without a session, Python's own collector does the work.
    """
    while True:
        await sessions.wait_until_unused(QUIET_S)
        began_s = perf_counter()
        count = gc.collect()
        logger.debug(
            "= garbage collected: %d objects in %.0f ms", count, 1000 * (perf_counter() - began_s)
        )


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

    doors: Doors
    "Routes for the listeners, and doors with listeners of their own."
    named_keys: NamedKeys
    "Keys of persons and programs, which the listeners check."
    devices: DeviceServices
    "The device registry, and who is connected."
    drain_group: DrainGroup
    "Work that is finished before the server stops."
    sessions: Sessions
    is_loaded: Callable[[], bool]
    "True while the default recogniser is loaded. A crashed one is started again."
    engine_names: Callable[[], Mapping[str, str]]
    "Returns the name of the serving engine for each kind of engine."
    settings_host: RunningEngines
    "Gives the settings their allowed values and checks, and takes over settings of new sessions."


@dataclass(frozen=True, slots=True)
class SharedState:
    """Parts that several gateways of one server share."""

    keeper: ConversationKeeper | None = None
    "Keeps copies of conversations; None: nobody does."
    places: PlaceCounter | None = None
    "Counts what is limited for all gateways together; None: this process is the only one."


ONE_PROCESS = SharedState()
"The `SharedState` of a server with one process."


@asynccontextmanager
async def assemble(
    config: Config,
    metrics: Metrics,
    trace_sink: TraceSink | None = None,
    tool_override: ToolOverride | None = None,
    workers: WorkerSource | None = None,
    shared: SharedState = ONE_PROCESS,
) -> AsyncIterator[ServerAssembly]:
    """Yields the parts of a working server; leaving the context ends every task and worker.

    `trace_sink`: receives the trace instead of the configured file. `tool_override`: replaces tool
    calls, see `Toolbox`. `workers`: see `run_engines`. `shared`: what several gateways share.

    Raises EngineMissing or ConfigError, possibly inside an ExceptionGroup of a TaskGroup.
    """
    clock, conversations, places = SystemClock(), Conversations(keeper=shared.keeper), shared.places
    home = Home(_demo_home(config), language=config.language)
    async with AsyncExitStack() as stack:
        devices = await stack.enter_async_context(device_services(config, clock, conversations))
        timers = Timers(home, clock, devices.announcements)
        guards = Guards(config.tools.guards, clock)
        skills = _skills(home, timers, clock, devices)
        demo_home_tools = HomeTools(home, guards)
        # Names of built-in tools are reserved: a tool of another package must not take one.
        reserved_names = _tool_names((demo_home_tools, *skills), config.language)
        configured_providers = await stack.enter_async_context(
            configured_tools(config.tools, reserved_names)
        )
        door_plugins = await _door_plugins(config)
        home_assistant = await stack.enter_async_context(
            run_home_assistant(config.home_assistant, home, clock, metrics, guards)
        )
        home_tools = (demo_home_tools,) if home_assistant is None else home_assistant.providers
        make_toolbox = partial(_toolbox, config, guards, metrics, tool_override)
        toolbox, mcp_toolbox = _toolboxes(
            config, make_toolbox, (*home_tools, *skills), devices, configured_providers
        )
        if home_assistant is None:
            check_guarded_devices(guards, home)
        trace = trace_sink or stack.enter_context(open_trace(config.trace.path))
        engines = await stack.enter_async_context(
            run_engines(config, toolbox, clock, metrics, workers)
        )
        services = replace(
            _session_services(config, engines, devices, toolbox, clock, metrics, trace),
            speakers=SpeakerRecognition(
                engines.speakers, devices.speakers, config.speakers.as_settings()
            ),
            apply_profile=devices.speakers.apply_profile,
            languages=engines.languages,
            codes=guards.codes(),
        )
        if home_assistant is not None:
            # Recognisers expect the names of Home Assistant's devices and rooms.
            engine_set = replace(services.engines, expected_names=home_assistant.keywords)
            services = replace(services, engines=engine_set)
        controls = HomeControls(home, timers, home_assistant.switch if home_assistant else None)
        defaults = SessionDefaults(config)
        backend = _backend(
            config, engines, services, conversations, home, controls, devices, defaults, places
        )
        mcp = mcp_server_routes(config, mcp_toolbox, conversations, devices.named_keys, clock)
        doors = open_doors(backend, door_plugins, mcp)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        warm_up = warm_other_languages(engines.llm, config.language, toolbox, backend.sessions)
        background = _start_background(tasks, timers, devices, backend.sessions, doors, warm_up)
        yield ServerAssembly(
            doors=doors,
            named_keys=devices.named_keys,
            devices=devices,
            sessions=backend.sessions,
            drain_group=_drain_group(backend, doors),
            is_loaded=engines.is_loaded,
            engine_names=engines.names,
            settings_host=RunningEngines(engines, defaults, config.language),
        )
        for task in background:
            task.cancel()


async def _door_plugins(config: Config) -> Sequence[ChosenPlugin]:
    """Returns the doors of other packages that the settings name, and logs them and the plugins
    that are not named."""
    await asyncio.to_thread(log_unused_plugins, config)
    chosen = await asyncio.to_thread(choose_plugins, "earshot.doors", config.doors)
    for plugin in chosen:
        logger.info("door of %s", plugin.label)
    return chosen


def _toolboxes(
    config: Config,
    make: Callable[[Sequence[ToolProvider]], Toolbox],
    house_tools: Sequence[ToolProvider],
    devices: DeviceServices,
    configured: Sequence[ToolProvider],
) -> tuple[Toolbox, Toolbox]:
    """Returns the tools of the assistant, and those of the MCP server. `house_tools`: those of the
    home, and skills. `configured`: those that the settings add."""
    rooms = devices.announcement_tools
    asked_rooms = (rooms,) if config.tools.rooms else ()
    own = (*house_tools, devices.tools, devices.voice_enrolment, *asked_rooms)
    offered = mcp_tools(config.mcp_server, (*house_tools, rooms), configured)
    return make((*own, *configured)), make(offered)


def _toolbox(
    config: Config,
    guards: Guards,
    metrics: Metrics,
    override: ToolOverride | None,
    providers: Sequence[ToolProvider],
) -> Toolbox:
    toolbox = Toolbox(
        providers,
        metrics,
        timeout_s=config.tools.timeout_s,
        override=override,
        offers_all=config.tools.offered == "all",
        guards=guards,
    )
    warn_of_unknown_tools(guards, toolbox.names(ToolContext("", config.language)))
    return toolbox


def _drain_group(backend: Backend, doors: Doors) -> DrainGroup:
    shared = backend.transcriber, backend.speech_files, backend.one_shot_responses
    return DrainGroup(
        backend.sessions,
        (*shared, doors.limits, doors.kserve.service, backend.engines.remote),
    )


def _start_background(
    tasks: asyncio.TaskGroup,
    timers: Timers,
    devices: DeviceServices,
    sessions: Sessions,
    doors: Doors,
    warm_up: Coroutine[Any, Any, None],
) -> list[asyncio.Task[None]]:
    """Starts the background work that belongs to no session, and returns its tasks."""
    work: dict[str, Coroutine[Any, Any, None]] = {
        "timers": timers.run(),
        "announcements": devices.announcements.run(),
        "wake-words": devices.wake_arbiter.run(),
        "device-changes": devices.registry.run(),
        "named-keys": devices.named_keys.run(devices.registry.changed),
        "kept-conversations": devices.kept_conversations.run(),
        "own-voices": devices.own_voices.run(),
        "speakers": devices.speakers.run(),
        "idle-gc": collect_when_idle(sessions),
        "llm-warm-up": warm_up,
        **{name: run() for name, run in doors.background.items()},
    }
    return [tasks.create_task(coroutine, name=name) for name, coroutine in work.items()]


def _session_services(
    config: Config,
    engines: Engines,
    devices: DeviceServices,
    toolbox: Toolbox,
    clock: Clock,
    metrics: Metrics,
    trace: TraceSink | None,
) -> SessionServices:
    """Builds the services that every session uses."""
    engine_set = engines.engine_set(config.language, is_strict=config.models.strict)
    if (cloning_voice := engines.cloning_voice) is not None:
        store, languages = devices.own_voices, engines.languages
        engine_set = with_own_voices(engine_set, cloning_voice, store, languages, metrics)
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
        listener=None if devices.last_turns is None else devices.last_turns.take,
    )


def _backend(
    config: Config,
    engines: Engines,
    session_services: SessionServices,
    conversations: Conversations,
    home: Home,
    home_controls: HomeControls,
    devices: DeviceServices,
    defaults: SessionDefaults,
    places: PlaceCounter | None,
) -> Backend:
    """Builds the services that the doors share."""
    initial_settings = CallerDefaults(defaults, devices.named_keys)
    cloning_voice = engines.cloning_voice
    own_voices = OwnVoices(cloning_voice, devices.own_voices) if cloning_voice else None
    return Backend(
        config=config,
        engines=engines,
        session_services=session_services,
        home=home,
        home_controls=home_controls,
        devices=devices,
        server_settings=defaults,
        initial_settings=initial_settings,
        conversations=conversations,
        sessions=Sessions(session_services, conversations, config.server.max_sessions, places),
        transcriber=Transcriber(session_services.engines),
        speech_files=SpeechFiles(session_services.engines, engines.languages),
        own_voices=own_voices,
        languages=engines.languages,
        one_shot_responses=OneShotResponses(
            session_services, conversations, engines.languages, default_settings=initial_settings
        ),
        decoder=DecoderProcess(session_services.metrics),
        places=places,
    )


def _skills(
    home: Home, timers: Timers, clock: Clock, devices: DeviceServices
) -> list[ToolProvider]:
    return [ListTools(home, devices.person_lists), TimerTools(timers), ClockTools(clock)]


def _tool_names(providers: Sequence[ToolProvider], language: str) -> frozenset[str]:
    """Returns the names of all tools of these providers."""
    context = ToolContext("", language)
    return frozenset(spec.name for provider in providers for spec in provider.tools(context))


def _demo_home(config: Config) -> HomeConfig:
    """Returns the demo home's devices. If Home Assistant is configured, its devices replace them;
    then the demo home only holds the shopping list."""
    if config.home_assistant.url:
        return HomeConfig()
    return config.home or default_home()
