"""Which engine serves each stage, and why. Pure: `serve`, `doctor` and the page say the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import EngineMissing
from engines.registry import Available, Kind
from serving.hardware import Hardware

KINDS: tuple[Kind, ...] = ("vad", "asr", "llm", "tts")

AUTO = "auto"

PREFERRED: Mapping[Kind, Sequence[tuple[str, str]]] = {
    "vad": (
        ("gated", "a cheap gate in front of the best detector"),
        ("silero", "the best detector"),
        ("webrtc", "the detector that needs nothing else"),
    ),
    "asr": (("pocketsphinx", "no Whisper weights in the models folder; it needs none"),),
    "llm": (("intents", "understands home commands without a language model"),),
    "tts": (("espeak", "speaks every language at once, without weights"),),
}
"What `auto` takes: the first that is installed, and what speaks for it."

WHISPER = "faster_whisper"
WHISPER_FILES = ("config.json", "model.bin", "tokenizer.json")

FIXTURES = ("whisper-nano",)
"Knows two hundred words of one synthetic voice: for tests, whoever puts it where."

ONE_AT_A_TIME = ("pocketsphinx",)
"Recognisers of one thread."

GPU_GB = 6.0
"From here on a GPU holds the largest Whisper beside everything else."


@dataclass(frozen=True, slots=True)
class Weights:
    """A model that lies in the models folder."""

    path: Path
    size_mb: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the configuration says about one kind."""

    engine: str = AUTO
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine to load, and the sentence that explains it."""

    kind: Kind
    name: str
    options: Mapping[str, Any] = field(repr=False)
    why: str


def find_whisper(models_dir: Path) -> tuple[Weights, ...]:
    """Whisper models in CTranslate2's form, one folder each; hidden ones are half downloaded."""
    if not models_dir.is_dir():
        return ()
    return tuple(
        Weights(folder, (folder / "model.bin").stat().st_size / 1e6)
        for folder in sorted(models_dir.iterdir())
        if not folder.name.startswith(".")
        and folder.name not in FIXTURES
        and all((folder / name).is_file() for name in WHISPER_FILES)
    )


def choose(
    kind: Kind,
    wanted: Wanted,
    known: Sequence[Available],
    weights: Sequence[Weights],
    hardware: Hardware,
) -> Choice:
    """The engine for one kind. `known`: what `registry.available(kind)` says.

    Raises EngineMissing when it, or everything `auto` could take, is not installed.
    """
    installed = {engine.name: engine.installed for engine in known}
    if wanted.engine != AUTO:
        return _named(kind, wanted, known, weights, hardware)
    if kind == "asr" and weights and installed.get(WHISPER):
        return _whisper(wanted, weights, hardware)
    for name, why in PREFERRED[kind]:
        if installed.get(name):
            if kind == "asr" and weights:
                why = f"{WHISPER} is not installed, so the weights in the folder are of no use"
            return Choice(kind, name, wanted.options, why)
    reasons = "; ".join(f"{e.name}: {e.reason or 'has no weights'}" for e in known) or "none known"
    raise EngineMissing(kind, AUTO, f"no {kind} engine can be used ({reasons})")


def _named(
    kind: Kind,
    wanted: Wanted,
    known: Sequence[Available],
    weights: Sequence[Weights],
    hardware: Hardware,
) -> Choice:
    """The configured engine. One nobody knows may be a third party's; loading it will tell."""
    for engine in known:
        if engine.name == wanted.engine and not engine.installed:
            raise EngineMissing(kind, wanted.engine, engine.reason)
    if wanted.engine == WHISPER and "model" not in wanted.options:
        if not weights:
            raise EngineMissing(
                kind, WHISPER, "no weights in the models folder; set asr.options.model"
            )
        return _whisper(wanted, weights, hardware)
    return Choice(kind, wanted.engine, wanted.options, "it is configured")


def _whisper(wanted: Wanted, weights: Sequence[Weights], hardware: Hardware) -> Choice:
    """The best that keeps up with live speech; if none does, the smallest."""
    limit_mb, machine = _room(hardware)
    fitting = [model for model in weights if model.size_mb <= limit_mb]
    if fitting:
        best = max(fitting, key=lambda model: model.size_mb)
        why = f"{best.path.name} is the largest Whisper in the models folder that suits {machine}"
    else:
        best = min(weights, key=lambda model: model.size_mb)
        why = f"{best.path.name} is the smallest Whisper in the models folder; large for {machine}"
    return Choice("asr", WHISPER, {"model": str(best.path), **wanted.options}, why)


def _room(hardware: Hardware) -> tuple[float, str]:
    """Megabytes of weights (float16 on disk) that this machine computes in time."""
    memory_gb = max((gpu.memory_gb for gpu in hardware.gpus), default=0.0)
    if memory_gb >= GPU_GB:
        name = max(hardware.gpus, key=lambda gpu: gpu.memory_gb).name
        return 1000 * memory_gb / 2, name
    machine = f"{hardware.cores} cores"
    if hardware.cores >= 8 and hardware.memory_gb >= 8:
        return 600.0, machine  # small
    if hardware.cores >= 4 and hardware.memory_gb >= 4:
        return 200.0, machine  # base
    return 100.0, machine  # tiny


def worker_count(name: str, hardware: Hardware) -> int:
    """Processes for a recogniser, where nothing is configured.

    PocketSphinx decodes one utterance at a time, and what is no command for seconds; a second
    process keeps that from the other sessions. Whisper uses all cores from one process.
    """
    return min(2, hardware.cores) if name in ONE_AT_A_TIME else 1
