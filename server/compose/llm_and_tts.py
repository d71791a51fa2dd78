"""Loads, starts and warms up language models and voices, and closes them when the server stops."""

import asyncio
import gc
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import process_time

from msgspec import convert

from core.errors import ConfigError, EarshotError, EngineError, RequestError
from core.ports import Metrics, ToolContext, ToolSpec
from engines.base import (
    ClosableEngine,
    ConcurrencyLimitedLlm,
    Llm,
    LlmWithServer,
    Tts,
    TtsInfo,
    WarmableLlm,
)
from engines.base.wake import WakeWordEngine, find_wake_word
from engines.llm.hybrid import HybridLlm
from engines.llm.hybrid import Settings as HybridSettings
from engines.registry import load, worker_profile
from pipeline.session.sessions import Sessions
from pipeline.speech.cache import CachedTts, VoiceCache
from pipeline.speech.fallback import FallbackTts
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.voices import choose_voice
from pipeline.tools.toolbox import Toolbox
from server.compose.choices import PlacementInputs
from server.config.sections.tts import OwnVoicesConfig
from serving.model_host.source import WorkerSource
from serving.placement.choose import EngineSelection
from serving.workers.engine_process import StreamEngine
from serving.workers.process_llm import ProcessLlm
from serving.workers.process_tts import ProcessTts

logger = logging.getLogger(__name__)

FALLBACK_TTS = "espeak"
"TTS engine that speaks the languages and clauses that the chosen engine cannot speak."

HOME_LANGUAGES = ("en", "de", "fr", "es")
"Languages in which the demo home has names, and the skills have sentences and replies."

WARM_UP_AFTER_S = 20.0
"""Time without a session before the other languages are warmed up, in seconds. A user who has just
started the server talks to it sooner."""

QUIET_S = 1.0
"""Processor time of this process in that time, up to which nobody uses the server: requests without
a session take some, too."""


async def load_language_model(
    choice: EngineSelection, workers: WorkerSource, metrics: Metrics, stack: AsyncExitStack
) -> Llm:
    """Loads the language model without starting it. Raises EngineError or ConfigError."""
    llm = await asyncio.to_thread(load, "llm", choice.name, choice.options)
    llm = await asyncio.to_thread(_in_worker, llm, choice.name, choice.options, workers)
    _close_at_end(llm, stack)
    if isinstance(llm, HybridLlm):
        llm.on_failure = lambda error: _count_error(error, metrics)
    return llm


def _in_worker(llm: Llm, name: str, options: Mapping[str, object], workers: WorkerSource) -> Llm:
    """Returns the model as a worker process serves it, or as it is if it runs in this process. Of a
    hybrid model, the model behind it is replaced. The process starts later, with
    `start_language_model`. Blocking."""
    if isinstance(llm, HybridLlm):
        model = convert(dict(options), HybridSettings).model
        llm.model = _in_worker(llm.model, model.engine, model.options, workers)
        return llm
    profile = worker_profile("llm", name, options)
    if profile is None:
        return llm
    limit = llm.max_concurrency if isinstance(llm, ConcurrencyLimitedLlm) else None
    return ProcessLlm(workers.process("llm", name, options, type(None), profile, limit), llm)


async def start_language_model(
    llm: Llm, language: str, toolbox: Toolbox, stack: AsyncExitStack
) -> None:
    """Starts the language model and warms it up for the default language. Raises EngineError."""
    if isinstance(llm, LlmWithServer):
        await stack.enter_async_context(llm.running())
    if isinstance(llm, WarmableLlm):
        await llm.warm(language, tool_specs(toolbox, language))


async def start_voice(
    choice: EngineSelection, workers: WorkerSource, stack: AsyncExitStack
) -> StreamEngine[TtsInfo] | None:
    """Starts the worker process of the chosen TTS engine, without waiting until it has loaded;
    `stack` ends it. Returns None for an engine that runs in this process. Raises ConfigError."""
    profile = await asyncio.to_thread(worker_profile, "tts", choice.name, choice.options)
    if profile is None:
        return None
    process = workers.process("tts", choice.name, choice.options, TtsInfo, profile)
    await stack.enter_async_context(process.running())
    return process


@dataclass(frozen=True, slots=True)
class LoadedVoices:
    """TTS engines that are ready to speak."""

    choice: EngineSelection
    "The engine that speaks unless another one must."
    engines: Mapping[str, Tts]
    "All engines by name, the one of `choice` first."


async def load_voices(
    choice: EngineSelection,
    inputs: PlacementInputs,
    languages: TextLanguageDetector,
    metrics: Metrics,
    stack: AsyncExitStack,
    process: StreamEngine[TtsInfo] | None = None,
) -> LoadedVoices:
    """Loads the chosen TTS engine, and espeak for languages and clauses that it cannot speak. If it
    does not load, espeak takes its place. All share one cache for frequent replies. `process`: the
    worker of the chosen engine, if it has one. Raises EngineError or ConfigError."""
    cache = VoiceCache(metrics)
    has_fallback = choice.name != FALLBACK_TTS and any(
        engine.name == FALLBACK_TTS and engine.installed for engine in inputs.engines["tts"]
    )

    async def load_engine(name: str, options: Mapping[str, object]) -> Tts:
        tts: Tts
        if process is not None and name == choice.name:
            waits = not has_fallback
            tts = ProcessTts(process, await process.ready(), metrics, waits=waits)
        else:
            tts = await asyncio.to_thread(load, "tts", name, options)
            _close_at_end(tts, stack)
        return CachedTts(tts, cache)

    if not has_fallback:
        return LoadedVoices(choice, {choice.name: await load_engine(choice.name, choice.options)})
    fallback = await load_engine(FALLBACK_TTS, {})
    try:
        primary = await load_engine(choice.name, choice.options)
    except EngineError as error:
        logger.warning("! %s; %s speaks instead", error, FALLBACK_TTS)
        replacement = EngineSelection("tts", FALLBACK_TTS, {}, f"{choice.name} does not load")
        return LoadedVoices(replacement, {FALLBACK_TTS: fallback})
    tts = FallbackTts(primary, fallback, languages, metrics)
    return LoadedVoices(choice, {choice.name: tts, FALLBACK_TTS: fallback})


async def load_cloning_voice(
    config: OwnVoicesConfig,
    choice: EngineSelection,
    process: StreamEngine[TtsInfo] | None,
    workers: WorkerSource,
    metrics: Metrics,
    stack: AsyncExitStack,
) -> ProcessTts | None:
    """Returns the engine that makes voices of recordings; None if there shall be none, or if it
    does not load. `choice` and `process`: the engine of the answers; it is shared if it is the same
    one. Raises ConfigError for an engine that cannot make voices."""
    if not config.engine:
        return None
    if process is None or (config.engine, config.options) != (choice.name, choice.options):
        own = EngineSelection("tts", config.engine, config.options, "tts.own_voices")
        process = await start_voice(own, workers, stack)
    try:
        info = None if process is None else await process.ready()
    except EngineError as error:
        logger.warning("! %s; there are no voices of one's own", error)
        return None
    if process is None or info is None or not info.can_clone:
        raise ConfigError(
            f"tts.own_voices.engine: {config.engine} makes no voices of recordings; allowed:"
            " pocket, and engines of other packages that can"
        )
    return ProcessTts(process, info, metrics, waits=False)


def check_voice(voice: str, voices: Mapping[str, Tts], language: str) -> None:
    """Raises ConfigError if no engine has the configured voice. Otherwise every session would fail,
    although its client asked for no voice."""
    try:
        choose_voice(voices, language, voice)
    except RequestError as exc:
        if exc.param == "voice":
            raise ConfigError(f"assistant.voice: {exc}") from None


def check_wake_word(name: str, wake: WakeWordEngine) -> None:
    """Raises ConfigError if the engine does not know the configured wake word. Otherwise every
    session would fail."""
    try:
        find_wake_word(wake, name)
    except RequestError as exc:
        raise ConfigError(f"assistant.wake_word: {exc}") from None


async def warm_other_languages(
    llm: Llm,
    language: str,
    toolbox: Toolbox,
    sessions: Sessions,
    used_s: Callable[[], float] = process_time,
) -> None:
    """Warms up the home's other languages before a client needs them, in a quiet moment after the
    start.

    It takes some two seconds of processor time, which the first conversations would miss. What is
    loaded stays for good, so it is frozen for the garbage collector: a full collection over it
    would stop the event loop for some 50 ms, more than two frames of audio. If the model fails
    meanwhile, that is only logged. `used_s`: returns the processor time of this process so far.
    """
    _freeze()
    if not isinstance(llm, WarmableLlm):
        return
    await _quiet_moment(sessions, used_s)
    try:
        for code in HOME_LANGUAGES:
            if code != language and (code in llm.languages or isinstance(llm, HybridLlm)):
                await llm.warm(code, tool_specs(toolbox, code))
    except EngineError as exc:  # each turn tries again, and the other engines can go on
        logger.warning("%s", exc)
    _freeze()


async def _quiet_moment(sessions: Sessions, used_s: Callable[[], float]) -> None:
    """Waits until there was no session, and hardly any other work, for `WARM_UP_AFTER_S`."""
    is_quiet = False
    while not is_quiet:
        before_s = used_s()
        await asyncio.sleep(WARM_UP_AFTER_S)
        while sessions.count:
            await sessions.wait_until_unused(WARM_UP_AFTER_S)
        is_quiet = used_s() - before_s < QUIET_S


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def tool_specs(toolbox: Toolbox, language: str) -> list[ToolSpec]:
    """Lists every tool in the form for conversations in `language`."""
    return toolbox.specs(ToolContext("", language))


def _close_at_end(engine: object, stack: AsyncExitStack) -> None:
    """Closes the engine when `stack` is left, if it can be closed."""
    if isinstance(engine, ClosableEngine):
        stack.push_async_callback(engine.aclose)


def _count_error(error: EarshotError, metrics: Metrics) -> None:
    metrics.count("earshot_errors", code=error.code)
