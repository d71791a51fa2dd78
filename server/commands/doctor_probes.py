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
from server.compose.llm_and_tts import SPEAKS_ALL
from server.config import Config

ProbeVerdict = Literal["ok", "note", "fail"]
"Result of a check: works, works with a restriction, or keeps Earshot from answering."

LLM_LIMIT_S = 30.0
"Time limit in seconds. A model that is not in memory is loaded for the first question."
VOICE_LIMIT_S = 20.0
"Time limit in seconds for the first audio of one word, including loading the model."
MCP_LIMIT_S = 15.0
"""Time limit in seconds. A server that is a program may install itself first; then it is reported
as late."""
HOUSE_LIMIT_S = 15.0
"Time limit for Home Assistant's answer, in seconds."

LLM_ADVICE = "; start its server, or correct base_url, model and api_key under llm.options"
VOICE_ADVICE = "; correct tts.options, or take the engine espeak, which needs no server"
HOUSE_ADVICE = "; the rest works without it: see home_assistant.url and token"

LOW_DISK_MB = 500
"Free space in MB below which a note is given. One model needs more, and a trace fills it in days."
FULL_DISK_MB = 20
"Free space in MB below which the probe fails: the database and its journal cannot grow any more."

WORD = {"de": "Hallo.", "fr": "Bonjour.", "es": "Hola."}
"Word that a voice is asked to speak, by language; in other languages `Hello.`"

WITH_THE_SERVER = ("transformers", "vllm")
"""Language models that the server starts itself. They are not probed: loading takes minutes and
much memory."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of one check. `fail` means that a spoken question gets no answer."""

    verdict: ProbeVerdict
    what: str


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
    probes += _mcp(config)
    if config.home_assistant.url:
        where = f"home assistant at {config.home_assistant.url}"
        read_house = partial(probe_house, config)
        probes.append(_probe_within(HOUSE_LIMIT_S, where, "note", read_house, HOUSE_ADVICE))
    probes += [_disk("state_dir", config.paths.state_dir)]
    probes += [_disk("models_dir", config.paths.models_dir)]
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
    if isinstance(model, LlmWithServer) or model.name in WITH_THE_SERVER:
        return ProbeResult("note", f"llm: {model.name} starts with the server and was not tried")
    if model.name == "intents":
        return ProbeResult("ok", "llm: commands for the home are understood without a model")
    try:
        named = await model.probe() if isinstance(model, ProbeableLlm) else model.name
        async with aclosing(_first_words(model)) as words:
            async for _ in words:
                return ProbeResult("ok", f"llm: {named} answers")
    finally:
        if isinstance(llm, ClosableEngine):
            await llm.aclose()
    return ProbeResult("fail", f"llm: {named} answers without a word")


async def _first_words(model: Llm) -> AsyncGenerator[object, None]:
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
    word = WORD.get(language, "Hello.")
    frames = choice.tts.speak(_one_text(word), language=language, voice=choice.voice)
    async with aclosing(frames):
        async for frame in frames:
            if len(frame.pcm):
                said = f"{choice.engine} speaks {language!r} with the voice {choice.voice}"
                return ProbeResult("ok", f"tts: {said}")
    return ProbeResult("fail", f"tts: {choice.engine}: {word!r} has no sound")


async def _one_text(word: str) -> AsyncIterator[str]:
    yield word


def _mcp(config: Config) -> Sequence[Awaitable[ProbeResult]]:
    """Creates the probes of MCP servers. Their failure is only a note: questions are answered
    without them."""
    try:
        servers = mcp_tools(config.tools.mcp)
    except ConfigError as error:
        return [_found(ProbeResult("fail", str(error)))]
    # the result says it already
    logging.getLogger("pipeline.tools.mcp.client").setLevel(logging.ERROR)
    return [
        _probe_within(MCP_LIMIT_S, f"mcp {one.name}", "note", partial(probe_mcp, one))
        for one in servers
    ]


async def probe_mcp(server: McpToolProvider) -> ProbeResult:
    """Connects to an MCP server and lists its tools."""
    with single_error():
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(server.run(), name=f"mcp-{server.name}")
            await server.tried()
            found = ProbeResult("ok", f"mcp {server.name}: {server.count} tools")
            if not server.is_connected:
                why = f"mcp {server.name}: {server.reason}; its tools are missing"
                found = ProbeResult("note", why)
            running.cancel()
    return found


async def probe_house(config: Config) -> ProbeResult:
    """Reads Home Assistant's entities. Without it, the built-in tools still work."""
    found = await fetch_once(config.home_assistant.as_settings())
    counted = f"{len(found.entities)} exposed entities in {len(found.areas)} areas"
    verdict: ProbeVerdict = "ok" if found.entities else "note"
    return ProbeResult(verdict, f"home assistant at {config.home_assistant.url}: {counted}")


def _disk(setting: str, path: str) -> Awaitable[ProbeResult]:
    return _probe_within(5.0, f"paths.{setting}", "note", lambda: _found(probe_disk(setting, path)))


async def _found(finding: ProbeResult) -> ProbeResult:
    return finding


def probe_disk(setting: str, path: str) -> ProbeResult:
    """Checks the free space and the write permission of a folder, or of the parent where it will be
    made."""
    folder = Path(path).expanduser().absolute()
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    free_mb = shutil.disk_usage(existing).free // 2**20
    what = f"paths.{setting} {folder}"
    is_needed = setting == "state_dir"
    if is_needed and not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        return ProbeResult("fail", f"{what}: {existing} cannot be written; choose another folder")
    if free_mb < FULL_DISK_MB:
        return ProbeResult("fail" if is_needed else "note", f"{what}: the disk is full")
    if free_mb < LOW_DISK_MB:
        return ProbeResult("note", f"{what}: only {free_mb} MB are free")
    return ProbeResult("ok", f"{what}: {free_mb / 1024:.0f} GB free")


def spare_voices(chosen: dict[str, Tts], load_spare: Callable[[], object]) -> dict[str, Tts]:
    """Returns the TTS engines that the server would have: the chosen one, if it loads, and espeak
    for the rest."""
    voices = dict(chosen)
    if SPEAKS_ALL not in voices:
        with suppress(EarshotError):
            voices[SPEAKS_ALL] = cast(Tts, load_spare())
    return voices
