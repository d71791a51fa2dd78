"""Probes of `earshot doctor`. Each checks one thing that an answer needs, within a time limit."""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, cast, runtime_checkable

from core.errors import ConfigError, EarshotError, RequestError
from core.tasks import single_error
from devices.home_assistant.client import fetch_once
from engines.base import ClosableEngine, Llm, LlmWithServer, Message, Tts
from engines.llm.hybrid import HybridLlm
from pipeline.speech.voices import choose_voice
from pipeline.tools.mcp import McpToolProvider, mcp_tools
from server.compose.llm_and_tts import FALLBACK_TTS
from server.config import Config

ProbeVerdict = Literal["ok", "note", "fail"]
"Result of a check: works, works with a restriction, or keeps Earshot from answering."

LLM_LIMIT_S = 30.0
"Time limit of a language model, in seconds. Some servers load a model only when it is asked."
VOICE_LIMIT_S = 20.0
"Time limit in seconds for the first audio of one word, including loading the model."
MCP_LIMIT_S = 15.0
"""Time limit of an MCP server, in seconds. A server that is a program may install itself first;
then the result is that it did not answer in time."""
HOME_ASSISTANT_LIMIT_S = 15.0
"Time limit for Home Assistant's answer, in seconds."

LLM_ADVICE = "; start its server, or correct base_url, model and api_key under llm.options"
VOICE_ADVICE = "; correct tts.options, or take the engine espeak, which needs no server"
HOME_ASSISTANT_ADVICE = "; the rest works without it: see home_assistant.url and token"

LOW_DISK_MB = 500
"Free space in MB below which a note is given. One model needs more, and a trace fills it in days."
FULL_DISK_MB = 20
"Free space in MB below which the probe fails: the database and its journal cannot grow any more."

TEST_WORDS = {"de": "Hallo.", "fr": "Bonjour.", "es": "Hola."}
"Word that a voice is asked to speak, by language; in other languages `Hello.`"

SUPERVISED_LLMS = ("llama_cpp", "transformers", "vllm")
"""Language models that Earshot's server starts itself. They are not probed: loading takes minutes
and much memory."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of one check. `fail` means that a spoken question gets no answer."""

    verdict: ProbeVerdict
    what: str
    "Sentence for the operator that says what was checked, and the outcome."


@runtime_checkable
class ProbeableLlm(Protocol):
    """Language model that can be identified without generating text."""

    async def probe(self) -> str:
        """Returns which model answers, and where. Raises EngineError if none can."""
        ...


async def probe_all(config: Config, llm: Llm | None, voices: dict[str, Tts]) -> list[ProbeResult]:
    """Runs all probes at the same time; returns their results in a fixed order. `llm`, `voices`:
    engines that could be loaded."""
    probes: list[Awaitable[ProbeResult]] = []
    if llm is not None:
        probe = partial(probe_llm, llm)
        probes.append(_probe_within(LLM_LIMIT_S, "llm", "fail", probe, LLM_ADVICE))
    if voices:
        speak = partial(probe_voice, config, voices)
        probes.append(_probe_within(VOICE_LIMIT_S, "tts", "fail", speak, VOICE_ADVICE))
    probes += _mcp_probes(config)
    if config.home_assistant.url:
        label = f"home assistant at {config.home_assistant.url}"
        probe_home = partial(probe_home_assistant, config)
        probes.append(
            _probe_within(HOME_ASSISTANT_LIMIT_S, label, "note", probe_home, HOME_ASSISTANT_ADVICE)
        )
    probes += [_disk_probe("state_dir", config.paths.state_dir)]
    probes += [_disk_probe("models_dir", config.paths.models_dir)]
    return list(await asyncio.gather(*probes))


async def _probe_within(
    limit_s: float,
    what: str,
    verdict_on_failure: ProbeVerdict,
    probe: Callable[[], Awaitable[ProbeResult]],
    advice: str = "",
) -> ProbeResult:
    """Runs a probe with a time limit; a timeout or an exception becomes a result too.
    `verdict_on_failure`: the verdict in that case. `advice`: text about what helps, added to the
    message."""
    try:
        async with asyncio.timeout(limit_s):
            return await probe()
    except TimeoutError:
        return ProbeResult(verdict_on_failure, f"{what}: no answer within {limit_s:g} s{advice}")
    except ConfigError as error:
        return ProbeResult("fail", f"{what}: {error}")
    except EarshotError as error:
        return ProbeResult(verdict_on_failure, f"{what}: {error} ({error.code}){advice}")
    except Exception as error:  # an engine of another package may raise anything
        return ProbeResult(verdict_on_failure, f"{what}: {type(error).__name__}: {error}{advice}")


async def probe_llm(llm: Llm) -> ProbeResult:
    """Asks the language model for a word."""
    model = llm.model if isinstance(llm, HybridLlm) else llm
    if isinstance(model, LlmWithServer) or model.name in SUPERVISED_LLMS:
        return ProbeResult("note", f"llm: {model.name} starts with the server and was not tried")
    if model.name == "intents":
        return ProbeResult("ok", "llm: commands for the home are understood without a model")
    try:
        model_name = await model.probe() if isinstance(model, ProbeableLlm) else model.name
        async with aclosing(_first_words(model)) as words:
            async for _ in words:
                return ProbeResult("ok", f"llm: {model_name} answers")
    finally:
        if isinstance(llm, ClosableEngine):
            await llm.aclose()
    return ProbeResult("fail", f"llm: {model_name} answers without a word")


async def _first_words(model: Llm) -> AsyncGenerator[object, None]:
    """Greets the model and yields the parts of its answer that have text."""
    question = [Message("user", "Hello.")]
    async with aclosing(model.reply(question, (), language="en")) as deltas:
        async for delta in deltas:
            if getattr(delta, "text", ""):
                yield delta


async def probe_voice(config: Config, voices: dict[str, Tts]) -> ProbeResult:
    """Lets the configured voice speak one word."""
    language = config.language
    try:
        choice = choose_voice(voices, language, config.assistant.voice)
    except RequestError as error:
        if error.code == "unsupported_language":
            return ProbeResult("note", f"tts: {error}; answers in it are only written")
        return ProbeResult("fail", f"tts: assistant.voice: {error}")
    word = TEST_WORDS.get(language, "Hello.")
    frames = choice.tts.speak(_single_text(word), language=language, voice=choice.voice)
    async with aclosing(frames):
        async for frame in frames:
            if len(frame.pcm):
                summary = f"{choice.engine} speaks {language!r} with the voice {choice.voice}"
                return ProbeResult("ok", f"tts: {summary}")
    return ProbeResult("fail", f"tts: {choice.engine}: {word!r} has no sound")


async def _single_text(word: str) -> AsyncIterator[str]:
    yield word


def _mcp_probes(config: Config) -> Sequence[Awaitable[ProbeResult]]:
    """Creates the probes of MCP servers. Their failure is only a note: questions are answered
    without them."""
    try:
        servers = mcp_tools(config.tools.mcp)
    except ConfigError as error:
        return [_immediate(ProbeResult("fail", str(error)))]
    # The probe's result reports a failed connection. The client's log would repeat it.
    logging.getLogger("pipeline.tools.mcp.client").setLevel(logging.ERROR)
    return [
        _probe_within(MCP_LIMIT_S, f"mcp {server.name}", "note", partial(probe_mcp, server))
        for server in servers
    ]


async def probe_mcp(server: McpToolProvider) -> ProbeResult:
    """Connects to an MCP server and lists its tools."""
    with single_error():
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(server.run(), name=f"mcp-{server.name}")
            await server.first_attempt()
            tools = _count_text(server.count, "tool", "tools")
            result = ProbeResult("ok", f"mcp {server.name}: {tools}")
            if not server.is_connected:
                problem = f"mcp {server.name}: {server.reason}; its tools are missing"
                result = ProbeResult("note", problem)
            running.cancel()
    return result


async def probe_home_assistant(config: Config) -> ProbeResult:
    """Reads Home Assistant's entities. Without it, the built-in tools still work."""
    home = await fetch_once(config.home_assistant.as_settings())
    entities = _count_text(len(home.entities), "exposed entity", "exposed entities")
    counts = f"{entities} in {_count_text(len(home.areas), 'area', 'areas')}"
    verdict: ProbeVerdict = "ok" if home.entities else "note"
    return ProbeResult(verdict, f"home assistant at {config.home_assistant.url}: {counts}")


def _count_text(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular if count == 1 else plural}"


def _disk_probe(setting: str, path: str) -> Awaitable[ProbeResult]:
    return _probe_within(
        5.0, f"paths.{setting}", "note", lambda: _immediate(probe_disk(setting, path))
    )


async def _immediate(result: ProbeResult) -> ProbeResult:
    """Returns a known result in the form of a probe."""
    return result


def probe_disk(setting: str, path: str) -> ProbeResult:
    """Checks the free space and the write permission of a folder, or of the parent where it will be
    made."""
    folder = Path(path).expanduser().absolute()
    existing = next(candidate for candidate in (folder, *folder.parents) if candidate.exists())
    free_mb = shutil.disk_usage(existing).free // 2**20
    subject = f"paths.{setting} {folder}"
    is_needed = setting == "state_dir"
    if is_needed and not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        return ProbeResult(
            "fail", f"{subject}: {existing} cannot be written; choose another folder"
        )
    if free_mb < FULL_DISK_MB:
        return ProbeResult("fail" if is_needed else "note", f"{subject}: the disk is full")
    if free_mb < LOW_DISK_MB:
        return ProbeResult("note", f"{subject}: only {free_mb} MB are free")
    return ProbeResult("ok", f"{subject}: {free_mb / 1024:.0f} GB free")


def available_voices(chosen: dict[str, Tts], load_fallback: Callable[[], object]) -> dict[str, Tts]:
    """Returns the TTS engines that the server would have: `chosen` (empty if the chosen engine does
    not load), and espeak for what it cannot speak. `load_fallback` loads espeak."""
    voices = dict(chosen)
    if FALLBACK_TTS not in voices:
        with suppress(EarshotError):
            voices[FALLBACK_TTS] = cast(Tts, load_fallback())
    return voices
