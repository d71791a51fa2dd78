"""Language models and voices: loaded, started, warmed, and closed when the server ends."""

import asyncio
import gc
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol, runtime_checkable

from core.errors import ConfigError, EarshotError, EngineError, RequestError
from core.ports import Metrics, ToolContext, ToolSpec
from engines.base import Llm, Tts
from engines.base.wake import WakeWordEngine, find_word
from engines.llm.hybrid import HybridLlm
from engines.registry import load
from pipeline.speech.cache import CachedTts, VoiceCache
from pipeline.speech.voices import choose_voice
from pipeline.tools.toolbox import Toolbox
from server.commands.engines.command import folder_of
from server.compose.choices import PlacementInputs
from server.config import Config
from serving.placement.choose import EngineSelection

logger = logging.getLogger(__name__)

SPEAKS_ALL = "espeak"
"The voice for languages that the chosen one does not speak."

SUPERVISED = "vllm"
"The language model that runs in an environment of its own, which we made."

HOME_LANGUAGES = ("en", "de", "fr", "es")
"In which the bundled home has names, and the skills have sentences and replies of ours."


@runtime_checkable
class WarmableLlm(Protocol):
    """A language model that is slow the first time unless it is told beforehand."""

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None: ...


@runtime_checkable
class LlmWithServer(Protocol):
    """A language model with a server of its own."""

    def running(self) -> AbstractAsyncContextManager[None]: ...


@runtime_checkable
class ClosableEngine(Protocol):
    """An engine that holds connections or a process."""

    async def aclose(self) -> None: ...


async def load_language_model(
    choice: EngineSelection, config: Config, metrics: Metrics, stack: AsyncExitStack
) -> Llm:
    """Not started yet. Raises EngineError, ConfigError."""
    options = _with_environment(choice.name, choice.options, config.paths.state_dir)
    llm = await asyncio.to_thread(load, "llm", choice.name, options)
    _close_at_end(llm, stack)
    if isinstance(llm, HybridLlm):
        llm.on_failure = lambda error: _count(error, metrics)
    return llm


async def start_language_model(
    llm: Llm, language: str, toolbox: Toolbox, stack: AsyncExitStack
) -> None:
    """Up, and warm for the language that most sessions will have. Raises EngineError."""
    if isinstance(llm, LlmWithServer):
        await stack.enter_async_context(llm.running())
    if isinstance(llm, WarmableLlm):
        await llm.warm(language, tool_specs(toolbox, language))


async def load_voices(
    choice: EngineSelection, found: PlacementInputs, metrics: Metrics, stack: AsyncExitStack
) -> Mapping[str, Tts]:
    """The chosen one, and the one that speaks what it does not; frequent replies are kept."""
    wanted = {choice.name: choice.options}
    if any(one.name == SPEAKS_ALL and one.installed for one in found.known["tts"]):
        wanted.setdefault(SPEAKS_ALL, {})
    cache, voices = VoiceCache(metrics), dict[str, Tts]()
    for name, options in wanted.items():
        tts = await asyncio.to_thread(load, "tts", name, options)
        _close_at_end(tts, stack)
        voices[name] = CachedTts(tts, cache)
    return voices


def check_voice(wish: str, voices: Mapping[str, Tts], language: str) -> None:
    """Raises ConfigError: else every session would fail for what its client did not say."""
    try:
        choose_voice(voices, language, wish)
    except RequestError as exc:
        if exc.param == "voice":
            raise ConfigError(f"assistant.voice: {exc}") from None


def check_wake_word(name: str, wake: WakeWordEngine) -> None:
    """Raises ConfigError, for the same reason."""
    try:
        find_word(wake, name)
    except RequestError as exc:
        raise ConfigError(f"assistant.wake_word: {exc}") from None


async def warm_others(llm: Llm, language: str, toolbox: Toolbox) -> None:
    """Load the other languages that the home speaks before somebody waits for them.

    What is loaded then stays for good, so the collector need not look at it again: a full
    collection over it stops the loop for some 50 ms, more than two frames of sound. A model that
    is lost meanwhile is only told of.
    """
    if isinstance(llm, WarmableLlm):
        try:
            for code in HOME_LANGUAGES:
                if code != language and (code in llm.languages or isinstance(llm, HybridLlm)):
                    await llm.warm(code, tool_specs(toolbox, code))
        except EngineError as exc:  # turns try again; the others need not end for it
            logger.warning("%s", exc)
    gc.collect()
    gc.freeze()


def tool_specs(toolbox: Toolbox, language: str) -> list[ToolSpec]:
    """Every tool, as a conversation in `language` has them."""
    return toolbox.specs(ToolContext("", language))


def _with_environment(name: str, options: Mapping[str, Any], state_dir: str) -> Mapping[str, Any]:
    """Where `earshot engines install` put what the engine, or the one behind it, needs."""
    if name == SUPERVISED:
        return {"environment": str(folder_of(state_dir, SUPERVISED)), **options}
    model = options.get("model")
    if name == HybridLlm.name and isinstance(model, Mapping):
        behind, given = str(model.get("engine", "")), model.get("options", {})
        if not isinstance(given, Mapping):
            return options  # the engine says what is wrong with them
        inner = _with_environment(behind, given, state_dir)
        return {**options, "model": {**model, "options": inner}} if inner else options
    return options


def _close_at_end(engine: object, stack: AsyncExitStack) -> None:
    if isinstance(engine, ClosableEngine):
        stack.push_async_callback(engine.aclose)


def _count(error: EarshotError, metrics: Metrics) -> None:
    metrics.count("earshot_errors", code=error.code)
