"""`earshot doctor`: reports what is installed, reachable and chosen, and if Earshot can answer."""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from core.errors import ConfigError, EarshotError, EngineError
from core.packages.plugins import BUILT_IN
from core.ports import ToolContext
from core.terminal import Style, has_colours, styled
from devices.registry.database import count_devices
from engines.base import Llm, ToolFilterLlm, Tts, TtsInfo
from engines.llm.hybrid import HybridLlm
from engines.registry import EngineKind, load
from media.webrtc.rtp.call_path import describe_path, has_fast_path
from pipeline.tools.functions import FunctionTools, load_functions
from server.commands.doctor_probes import (
    ProbeResult,
    ProbeVerdict,
    available_voices,
    probe_all,
)
from server.compose.choices import (
    PlacementInputs,
    choose_one,
    describe,
    find_offers,
    offer_inputs,
    origin_of,
    survey,
)
from server.compose.devices import database_url
from server.compose.llm_and_tts import FALLBACK_TTS
from server.compose.plugins import choose_plugins, create_tools, unused_plugins
from server.compose.prompt_size import built_in_tools, known_tools, prompt_size
from server.config import Config
from server.net.addresses import lan_addresses
from server.net.listeners import AddressInUse, bind, is_local_only
from serving.asr.model import warmup_item
from serving.placement.choose import FIXTURES, KINDS, WhisperWeights
from serving.placement.offers import LoadableModel
from serving.placement.whisper import usable_gpus

MARKS: Mapping[ProbeVerdict, tuple[str, Style]] = {
    "ok": ("ok  ", "green"),
    "note": ("note", "yellow"),
    "fail": ("FAIL", "red"),
}
"Verdict of a probe -> mark at the start of its line, and its style on a terminal."


@dataclass(slots=True)
class LoadedEngines:
    """Engines that could be loaded, for probes that need them."""

    llm: Llm | None = None
    "The chosen language model; None if it did not load."
    voices: dict[str, Tts] = field(default_factory=dict[str, Tts])
    "TTS engines by name, the chosen one first; empty if none loaded."


def examine(config: Config) -> Iterator[ProbeResult]:
    """Yields the results of all checks. Blocking. Loads the engines and sends each a short request.
    Downloads nothing."""
    yield ProbeResult("ok", f"Python {sys.version.split()[0]} at {sys.executable}")
    inputs = survey(config.paths.models_dir)
    yield from _check_machine(inputs)
    yield _check_weights(config, inputs)
    loaded = LoadedEngines()
    for kind in KINDS:
        yield from _check_engines(config, kind, inputs, loaded)
    yield from _check_functions(config)
    yield from _check_plugins(config)
    yield _check_devices(config)
    yield _check_webrtc_path(config)
    yield from asyncio.run(probe_all(config, loaded.llm, loaded.voices))
    if loaded.llm is not None:
        yield from _check_prompt(config, loaded.llm)
    yield from _check_listener(config)


def show(results: Iterator[ProbeResult], *, as_json: bool = False) -> bool:
    """Prints each result as soon as it is known, or all of them as one JSON object at the end.
    Returns True if none failed, so that Earshot can answer."""
    if as_json:
        checks = list(results)
        can_answer = all(check.verdict != "fail" for check in checks)
        print(msgspec.json.encode({"can_answer": can_answer, "checks": checks}).decode())
        return can_answer
    failed = 0
    for result in results:
        print_result(result)
        failed += result.verdict == "fail"
    print()
    if failed:
        print(f"{failed} of these checks failed, so Earshot cannot answer; see FAIL above.")
    else:
        print("Earshot can recognise speech and answer.")
    return not failed


def print_result(result: ProbeResult) -> None:
    """Prints the line of one result."""
    mark, style = MARKS[result.verdict]
    if has_colours(sys.stdout, os.environ):
        mark = styled(mark, style)
    print(f"{mark}  {result.what}", flush=True)


def _check_machine(inputs: PlacementInputs) -> Iterator[ProbeResult]:
    """Reports processor, memory and GPUs."""
    hardware = inputs.hardware
    yield ProbeResult("ok", f"{hardware.cores} cores, {hardware.memory_gb:.1f} GB of memory")
    for note in hardware.notes:
        yield ProbeResult("note", note)
    for gpu in hardware.gpus:
        yield ProbeResult(
            "ok",
            f"GPU {gpu.name}: {gpu.free_gb:.0f} of {gpu.memory_gb:.0f} GB free,"
            f" compute capability {gpu.capability or 'unknown'}, driver {gpu.driver or 'unknown'}",
        )
    for reason in usable_gpus(hardware)[1]:
        yield ProbeResult("note", f"not used: {reason}")
    if not hardware.gpus:
        yield ProbeResult(
            "note", "no NVIDIA GPU (nvidia-smi lists none); the processor does the work"
        )


def _check_weights(config: Config, inputs: PlacementInputs) -> ProbeResult:
    """Reports the Whisper models in the models folder."""
    folder = Path(config.paths.models_dir).expanduser().absolute()
    if not inputs.weights:
        return ProbeResult(
            "note", f"no Whisper weights in {folder}; `earshot models pull auto` fetches some"
        )
    names = ", ".join(_weights_text(weights) for weights in inputs.weights)
    if not any(weights.is_candidate for weights in inputs.weights):
        advice = "`earshot models pull auto` fetches some that `auto` may choose"
        return ProbeResult("note", f"Whisper weights in {folder}: {names}; {advice}")
    return ProbeResult("ok", f"Whisper weights in {folder}: {names}")


def _weights_text(weights: WhisperWeights) -> str:
    if weights.damage:
        return f"{weights.name} (damaged: {weights.damage})"
    remark = "" if weights.is_multilingual else ", English only"
    if weights.name in FIXTURES:
        remark = ", a fixture for tests, chosen only by name"
    return f"{weights.name} ({weights.size_mb:.0f} MB{remark})"


def _check_engines(
    config: Config, kind: EngineKind, inputs: PlacementInputs, loaded: LoadedEngines
) -> Iterator[ProbeResult]:
    """Reports which engines of a kind exist, which one is chosen, and if it loads."""
    for engine in inputs.engines[kind]:
        is_built_in = engine.origin == BUILT_IN
        label = engine.name if is_built_in else f"{engine.name} of {engine.origin}"
        if not engine.installed:
            yield ProbeResult("note", f"{kind}: {label} is {engine.reason}")
        elif not is_built_in and engine.name != getattr(config, kind).engine:
            yield ProbeResult("ok", f"{kind}: {label} is installed")
    if kind == "asr":
        yield from _check_recognisers(config, inputs)
    else:
        yield _check_chosen_engine(config, kind, inputs, loaded)


def _check_chosen_engine(
    config: Config, kind: EngineKind, inputs: PlacementInputs, loaded: LoadedEngines
) -> ProbeResult:
    """Loads the chosen engine of a kind, and keeps language model and voices in `loaded` for
    probes."""
    choice = None
    try:
        choice = choose_one(config, kind, inputs)
        engine = load(kind, choice.name, choice.options)
    except EarshotError as error:
        # the server starts without a voice that does not load, but not without an unknown engine
        if kind == "tts" and choice is not None and isinstance(error, EngineError):
            loaded.voices = available_voices({}, partial(load, "tts", FALLBACK_TTS, {}))
            if loaded.voices and choice.name != FALLBACK_TTS:
                return ProbeResult("note", f"{kind}: {error}; {FALLBACK_TTS} speaks instead")
        return ProbeResult("fail", f"{kind}: {error}")
    if kind == "llm":
        loaded.llm = cast(Llm, engine)
    elif kind == "tts":
        engines = {choice.name: cast(Tts, engine)}
        loaded.voices = available_voices(engines, partial(load, "tts", FALLBACK_TTS, {}))
    elif close := getattr(engine, "close", None):
        close()
    info = getattr(engine, "info", None)
    timing = f"; {_word_times_text(info)}" if isinstance(info, TtsInfo) else ""
    origin = origin_of(choice, inputs)
    return ProbeResult("ok", f"{kind}: {choice.name} ({choice.why}), {origin}{timing}")


def _word_times_text(voice: TtsInfo) -> str:
    """Says how the server finds out which words of an interrupted answer were played."""
    if voice.has_word_times:
        return "says when each word sounds: a cut answer keeps the words that were heard"
    return "gives no word times: the words of a cut answer are counted in proportion to its sound"


def _check_recognisers(config: Config, inputs: PlacementInputs) -> Iterator[ProbeResult]:
    """Tests and reports the recogniser that is loaded at start, then reports the others."""
    try:
        asr_inputs = offer_inputs(config, inputs)
        preferred, *others = find_offers(config, asr_inputs)
        usable, problem = _usable_offer(preferred)
    except EarshotError as error:
        yield ProbeResult("fail", f"asr: {error}")
        return
    choice = asr_inputs.choice
    origin = origin_of(choice, inputs)
    yield ProbeResult("ok", f"asr: {choice.name} ({choice.why}), {origin}")
    if problem:
        yield ProbeResult("note", f"asr: {preferred.name}: {problem}; {usable.why} instead")
    yield ProbeResult("ok", f"asr: {_offer_text(usable)}; loaded at start")
    for warning in usable.warnings:
        yield ProbeResult("note", f"asr: {usable.name}: {warning}")
    for offer in others:
        try:
            describe(offer)
        except EarshotError as error:
            yield ProbeResult("note", f"asr: {offer.name} cannot be used: {error}")
        else:
            yield ProbeResult("ok", f"asr: {_offer_text(offer)}; loaded when it is first asked for")


def _offer_text(offer: LoadableModel) -> str:
    names = "".join(f" or {alias}" for alias in offer.aliases)
    size = f"{offer.size_mb:.0f} MB, " if offer.size_mb else ""
    return f"{offer.name}{names}: {size}{offer.why}"


def _usable_offer(offer: LoadableModel) -> tuple[LoadableModel, str]:
    """Returns the model that the server will use: `offer`, or its fallback with the reason. Raises
    EarshotError if neither works."""
    try:
        _test_decode(offer)
    except EarshotError as error:
        if offer.fallback is None:
            raise
        _test_decode(offer.fallback)
        return offer.fallback, str(error)
    return offer, ""


def _test_decode(offer: LoadableModel) -> None:
    """Loads the model as a worker does, and decodes a second of audio. Raises EarshotError."""
    model = load("asr", offer.engine, offer.options)
    model.decode([warmup_item(model.info)])
    model.close()


def _check_functions(config: Config) -> Iterator[ProbeResult]:
    """Imports the configured modules and lists their tools."""
    if not config.tools.modules:
        return
    try:
        provider = FunctionTools(load_functions(config.tools.modules))
    except ConfigError as error:
        yield ProbeResult("fail", str(error))
        return
    names = ", ".join(spec.name for spec in provider.tools(ToolContext("", config.language)))
    yield ProbeResult("ok", f"tools of tools.modules: {names}")


def _check_plugins(config: Config) -> Iterator[ProbeResult]:
    """Reports plugins: first those that the configuration names, then the others."""
    try:
        for plugin in choose_plugins("earshot.doors", config.doors):
            yield ProbeResult("ok", f"door of {plugin.label}: opens with the server")
        context = ToolContext("", config.language)
        built_in_names = {
            spec.name for skill in built_in_tools(config) for spec in skill.tools(context)
        }
        for label, provider in create_tools(config.tools, built_in_names).items():
            names = ", ".join(spec.name for spec in provider.tools(context))
            yield ProbeResult("ok", f"tools of {label}: {names}")
    except ConfigError as error:
        yield ProbeResult("fail", str(error))
    for is_usable, sentence in unused_plugins(config):
        yield ProbeResult("ok" if is_usable else "note", sentence)


def _check_devices(config: Config) -> ProbeResult:
    """Checks the device database. A failure is only a note: the web page works without it."""
    try:
        count = count_devices(database_url(config))
    except ConfigError as error:
        return ProbeResult("fail", str(error))
    except EarshotError as error:
        return ProbeResult("note", f"devices are turned away, the database cannot be read: {error}")
    if count is None:
        return ProbeResult("ok", "devices: the database is made at the start")
    return ProbeResult("ok", f"devices: {count} in the database")


def _check_webrtc_path(config: Config) -> ProbeResult:
    """Says which path the audio of WebRTC calls takes; if it is the slower one, also why."""
    try:
        ice = config.ice.as_settings()
    except ConfigError as error:
        return ProbeResult("fail", str(error))
    return ProbeResult("ok" if has_fast_path(ice) else "note", describe_path(ice))


def _check_prompt(config: Config, llm: Llm) -> Iterator[ProbeResult]:
    """Reports if instructions and tools leave room for a conversation. Tools of MCP servers need
    extra room."""
    model = llm.model if isinstance(llm, HybridLlm) else llm
    if model.context_tokens is None:
        return
    language = config.language
    try:
        tools = known_tools(config)
    except EarshotError as error:
        yield ProbeResult("fail", str(error))
        return
    declared = (
        llm.filter_tools(tools, language=language) if isinstance(llm, ToolFilterLlm) else tools
    )
    size = prompt_size(config, model, declared)
    if size is not None and size.fits:
        yield ProbeResult("ok", f"llm: {size}")
    elif size is not None:
        yield ProbeResult("note", size.advice())


def _check_listener(config: Config) -> Iterator[ProbeResult]:
    """Checks if the main listener can be opened, and says which machines can then connect."""
    address = f"{config.server.host} port {config.server.port}"
    try:
        sockets = bind(config.server.host, config.server.port)
    except AddressInUse as error:
        yield ProbeResult("note", f"{error} (perhaps Earshot itself)")
        return
    except EarshotError as error:
        yield ProbeResult("fail", str(error))
        return
    is_local, needs_key = is_local_only(sockets), config.server.needs_key_here
    for listener in sockets:
        listener.close()
    yield ProbeResult("ok", f"{address} is free")
    if is_local and needs_key:
        yield ProbeResult(
            "ok", "only this machine can connect, and it needs the key, as configured"
        )
    elif is_local:
        yield ProbeResult("ok", "only this machine can connect, so no key is needed")
    elif config.server.tls == "off":
        addresses = ", ".join(str(a) for a in lan_addresses()) or "other machines"
        yield ProbeResult(
            "note",
            f"over http browsers give the microphone only on this machine, not at {addresses};"
            " start with --tls auto",
        )
    yield ProbeResult(
        "note", "the browser asks for the microphone once per address; a refusal is undone there"
    )
