"""Chooses the engine for each stage, with the reason. Pure, so that `serve`, `doctor` and the web
page give the same answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import ConfigError, EngineMissing
from core.packages.plugins import BUILT_IN
from engines.registry import EngineAvailability, EngineKind
from serving.models.catalogue import find_entry, short_name
from serving.placement.benchmarks import ModelBenchmark, device_name, read_benchmarks
from serving.placement.ct2_header import (
    Ct2WeightsHeader,
    UnreadableWeightsError,
    read_weights_file,
)
from serving.placement.hardware import Hardware
from serving.placement.recordings import (
    RecordingsBenchmark,
    benchmark_of,
    read_recordings_benchmarks,
)
from serving.placement.sherpa import SCHEME, SHERPA, SherpaWeights
from serving.placement.whisper import CPU, asr_memory, place_model

KINDS: tuple[EngineKind, ...] = ("vad", "wake", "endpoint", "asr", "llm", "tts")
"Kinds of engines that a session uses. Models of the other kinds (embed, rerank) are found by name."

AUTO = "auto"
"Value of the configuration that leaves the choice to this module."

ENGLISH_VOICE = "hibari"
"TTS engine that speaks only English. `auto` passes over it where sessions have another language."

SMART_TURN = "smart_turn"
"Engine that detects from the sound whether a turn is over."

PREFERRED: Mapping[EngineKind, Sequence[tuple[str, str]]] = {
    "vad": (
        ("gated", "a cheap detector passes possible speech to the best one"),
        ("silero", "the best detector"),
        ("webrtc", "the detector that needs nothing else"),
    ),
    "wake": (
        ("micro", "detects wake words with very little processor time"),
        ("none", "no library for wake words runs here"),
    ),
    "endpoint": (
        (SMART_TURN, "judges by the sound whether a sentence is finished"),
        ("silence", "waits for silence, because no weights of smart_turn are installed"),
    ),
    "asr": (("pocketsphinx", "pocketsphinx needs none"),),
    "llm": (("intents", "understands home commands without a language model"),),
    "tts": (
        (ENGLISH_VOICE, "a natural voice for English; espeak speaks other languages"),
        ("espeak", "speaks every language at once, without weights"),
    ),
}
"""Engines that `auto` tries, in this order, and the reason for each. The first installed one is
chosen."""

WHISPER = "faster_whisper"
"Name of the engine that runs Whisper with CTranslate2."
WHISPER_TORCH = "whisper_torch"
"Name of the engine that runs Whisper with PyTorch."
WHISPER_SPEC = "WhisperSpec"
"Kind of model that CTranslate2 notes in the file of a Whisper."
WHISPER_FILES = ("config.json", "model.bin", "tokenizer.json")
"Files that a folder with a Whisper for CTranslate2 must have."

FIXTURES = ("whisper-nano",)
"""Models that `auto` never chooses. They know two hundred words of one synthetic voice, and are for
tests and for requests that name them."""

ENGLISH = "en"
"The only language of a Whisper that is not multilingual."

MULTILINGUAL_TOKENS = 51_865
"""Fewest tokens in the vocabulary of a multilingual Whisper; one that knows only English has 51864.
The languages in a folder's config.json say nothing: `tiny.en` lists 98 of them."""

SAME_SIZE = 0.95
"Two models count as equally large if the smaller one has this share of the larger one's size."

NO_WEIGHTS = "no Whisper weights in the models folder"
"Reason of `auto` for an empty folder."

AS_FLOAT16: Mapping[str, float] = {"int8": 2.0, "float32": 0.5}
"Factor from the size on disk to the size as float16, by the number type of the file."

LIVE_MS = 800.0
"""Longest time in ms that `auto` accepts for recognising a short sentence. The user waits for it
after every turn, after half a second of silence and before the language model. With more, the
answer would come after two seconds."""

ONE_AT_A_TIME = ("pocketsphinx",)
"Recognisers that decode one utterance at a time and need no weights."


@dataclass(frozen=True, slots=True)
class WhisperWeights:
    """A Whisper model in the models folder, or at the place that the configuration names."""

    path: Path
    "Folder of the model."
    size_mb: float
    "Size on disk."
    kind: str = "float16"
    "Number type of most of the weights in its file."
    measured: ModelBenchmark | None = None
    "Benchmark of the model; None: it was not measured."
    is_multilingual: bool = True
    "False: it knows English only."
    damage: str = ""
    "Why its file cannot be loaded; empty if nothing is known against it."
    on_recordings: RecordingsBenchmark | None = None
    "Word errors and times on the user's recordings; None: it was not measured with any."

    @property
    def is_candidate(self) -> bool:
        """True if `auto` may choose it."""
        return self.name not in FIXTURES and not self.damage

    def knows(self, language: str) -> bool:
        """True if it was trained to recognise the language."""
        return self.is_multilingual or language == ENGLISH

    @property
    def float16_mb(self) -> float:
        """Size of the model as float16, from which memory is estimated. The number type for
        computing is chosen when it is loaded."""
        return self.size_mb * AS_FLOAT16.get(self.kind, 1.0)

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.path.name

    def is_called(self, name: str) -> bool:
        """True if this is the name of its folder, or a name of it in the catalogue."""
        if name in (self.name, short_name(self.name)):
            return True
        entry = find_entry(name)
        return entry is not None and entry.name == short_name(self.name)


@dataclass(frozen=True, slots=True)
class EnginePreference:
    """Wishes of the configuration for one kind of engine."""

    engine: str = AUTO
    "Name of the engine, or AUTO."
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    "Settings of the engine."
    model: str = AUTO
    "Only for ASR: the name of an engine or of a model, or a model's folder."
    memory_mb: float = 0
    "Limit for recognisers on each device; 0: no limit is configured."
    workers: int = 0
    "Number of worker processes; 0: as suits the machine."
    language: str = ENGLISH
    "Language of sessions that name none."


@dataclass(frozen=True, slots=True)
class EngineSelection:
    """The engine to load for one kind, and the sentence that explains the choice."""

    kind: EngineKind
    name: str
    options: Mapping[str, Any] = field(repr=False)
    "Settings of the engine."
    why: str
    "Reason for the choice, for people."


def find_whisper(models_dir: Path) -> tuple[WhisperWeights, ...]:
    """Returns the Whisper models for CTranslate2 in the models folder, one per subfolder. Hidden
    folders are skipped: they are incomplete downloads.

    Raises ConfigError when the folder cannot be listed.
    """
    if not models_dir.is_dir():
        return ()
    try:
        folders = sorted(models_dir.iterdir())
    except OSError as error:
        raise ConfigError(f"paths.models_dir {models_dir}: {error.strerror}") from error
    measured, on_recordings = read_benchmarks(models_dir), read_recordings_benchmarks(models_dir)
    found = [
        weights_at(folder)
        for folder in folders
        if not folder.name.startswith(".") and _has_whisper(folder)
    ]
    return tuple(
        replace(
            model,
            measured=measured.get(model.name),
            on_recordings=benchmark_of(on_recordings, model.path, model.size_mb),
        )
        for model in found
    )


def _has_whisper(folder: Path) -> bool:
    try:
        return all((folder / name).is_file() for name in WHISPER_FILES)
    except OSError:  # such as lost+found on a volume, which only root may read
        return False


def weights_at(folder: Path) -> WhisperWeights:
    """Returns the weights in a folder. If there are none, their size is 0 MB, and loading them will
    report the error."""
    file = folder / "model.bin"
    try:
        status = file.stat()
    except OSError:
        return WhisperWeights(folder, 0.0)
    size_mb = status.st_size / 1e6
    header = _header(file, status.st_size, status.st_mtime_ns)
    if isinstance(header, str):
        return WhisperWeights(folder, size_mb, damage=header)
    return WhisperWeights(
        folder,
        size_mb,
        header.weight_type,
        is_multilingual=header.vocabulary >= MULTILINGUAL_TOKENS,
    )


@lru_cache(maxsize=1024)
def _header(file: Path, _size: int, _mtime_ns: int) -> Ct2WeightsHeader | str:
    """Returns the header of a file with weights, or what is wrong with the file. Cached by size and
    time of change, because the folder is listed again and again."""
    try:
        header = read_weights_file(file)
    except UnreadableWeightsError as error:
        return str(error)
    if header.spec != WHISPER_SPEC:
        return f"{file} is a {header.spec}, not a Whisper model"
    return header


def select_engine(
    kind: EngineKind,
    preference: EnginePreference,
    engines: Sequence[EngineAvailability],
    weights: Sequence[WhisperWeights],
    hardware: Hardware,
    sherpa: Sequence[SherpaWeights] = (),
) -> EngineSelection:
    """Returns the engine for one kind. `engines`: the result of `registry.available(kind)`.
    `weights`: the result of `find_whisper`. `sherpa`: that of `find_sherpa`.

    Raises EngineMissing when the engine, or everything that `auto` could choose, is not installed;
    ConfigError for an unknown model.
    """
    installed = {engine.name: engine.installed for engine in engines}
    if kind == "asr" and preference.model != AUTO:
        preference = _with_model(preference, engines, weights)
    if preference.engine != AUTO:
        return _configured_engine(kind, preference, engines, weights, hardware)
    candidates = [model for model in weights if model.is_candidate]
    if kind == "asr" and candidates and installed.get(WHISPER):
        has_torch = installed.get(WHISPER_TORCH, False) and not preference.options
        choice = _select_whisper(preference, candidates, hardware, has_torch=has_torch)
        if not installed.get(SHERPA) or preference.options:
            return choice
        return _better_sherpa(choice, preference.language, weights, hardware, sherpa) or choice
    path_needing = {engine.name for engine in engines if engine.needs_path}
    for name, why in PREFERRED[kind]:
        if name == ENGLISH_VOICE and preference.language != ENGLISH:
            continue
        if installed.get(name) and (name not in path_needing or "path" in preference.options):
            if kind == "asr":
                why = f"{_why_no_whisper(weights)}; {why}"
            return EngineSelection(kind, name, preference.options, why)
    no_weights = "has no weights"
    if kind == "asr":
        no_weights += "; `earshot models pull auto` fetches some"
    reasons = (
        "; ".join(f"{engine.name}: {engine.reason or no_weights}" for engine in engines)
        or "none known"
    )
    raise EngineMissing(kind, AUTO, f"no {kind} engine can be used ({reasons})")


def _why_no_whisper(weights: Sequence[WhisperWeights]) -> str:
    """Returns why `auto` takes none of the Whisper models in the models folder."""
    if any(model.is_candidate for model in weights):
        return f"{WHISPER} is not installed, so the weights in the models folder are of no use"
    reasons = [f"{model.name} is damaged ({model.damage})" for model in weights if model.damage]
    reasons += [
        f"{model.name} is a fixture for tests that knows 200 words"
        for model in weights
        if model.name in FIXTURES and not model.damage
    ]
    if not reasons:
        return NO_WEIGHTS
    return f"no Whisper in the models folder that may be chosen: {', '.join(reasons)}"


def _with_model(
    preference: EnginePreference,
    engines: Sequence[EngineAvailability],
    weights: Sequence[WhisperWeights],
) -> EnginePreference:
    """Translates `asr.model` into an engine and its options. Raises ConfigError."""
    if preference.model in [engine.name for engine in engines]:
        if preference.engine not in (AUTO, preference.model):
            raise ConfigError(
                f"asr.engine is {preference.engine!r} and asr.model {preference.model!r}: set only"
                " one of them"
            )
        return EnginePreference(preference.model, preference.options)
    if "model" in preference.options:
        raise ConfigError("asr.model and asr.options.model are both set: set only one of them")
    if preference.model.startswith(SCHEME) or preference.engine == SHERPA:
        if preference.engine not in (AUTO, SHERPA):
            raise ConfigError(f"asr.model is for {SHERPA}, and asr.engine is {preference.engine!r}")
        name = preference.model.removeprefix(SCHEME)
        return EnginePreference(SHERPA, {**preference.options, "model": name})
    if preference.engine == WHISPER_TORCH and "/" in preference.model:
        folder = str(Path(preference.model).expanduser())
        return EnginePreference(WHISPER_TORCH, {**preference.options, "model": folder})
    if preference.engine not in (AUTO, WHISPER):
        raise ConfigError(
            f"asr.model is for {WHISPER}, and asr.engine is {preference.engine!r}; "
            f"{WHISPER_TORCH} takes a folder with a checkpoint"
        )
    path = next(
        (
            str(model_weights.path)
            for model_weights in weights
            if model_weights.is_called(preference.model)
        ),
        None,
    )
    if path is None and "/" in preference.model:
        path = str(Path(preference.model).expanduser())
    if path is None:
        names = [engine.name for engine in engines] + [model.name for model in weights]
        raise ConfigError(f"asr.model: {unknown_model_message(preference.model, names)}")
    return EnginePreference(WHISPER, {**preference.options, "model": path})


def unknown_model_message(name: str, names: Sequence[str]) -> str:
    """Returns the message for an unknown model: similar names, all names, and how to get the
    model."""
    names_by_alias = {short_name(name_): name_ for name_ in names} | {
        name_: name_ for name_ in names
    }
    similar_names = dict.fromkeys(
        names_by_alias[name_] for name_ in get_close_matches(name, names_by_alias, n=3, cutoff=0.5)
    )
    hint = f"; similar: {', '.join(similar_names)}" if similar_names else ""
    entry = find_entry(name)
    pull_hint = ""
    if entry is not None and entry.kind == "asr":
        pull_hint = f"; `earshot models pull {entry.name}` fetches it"
    return f"no model {name!r}{hint}; there are: {', '.join(names)}{pull_hint}"


def _configured_engine(
    kind: EngineKind,
    preference: EnginePreference,
    engines: Sequence[EngineAvailability],
    weights: Sequence[WhisperWeights],
    hardware: Hardware,
) -> EngineSelection:
    """Returns the configured engine. An unknown name may belong to a third party; loading it will
    report an error."""
    for engine in engines:
        if engine.name == preference.engine and not engine.installed:
            prefix = "" if engine.origin == BUILT_IN else f"the engine of {engine.origin} is "
            raise EngineMissing(kind, preference.engine, f"{prefix}{engine.reason}")
    if preference.engine == WHISPER and "model" not in preference.options:
        candidates = [model for model in weights if model.is_candidate]
        if not candidates:
            raise EngineMissing(kind, WHISPER, f"{_why_no_whisper(weights)}; set asr.model")
        return _select_whisper(preference, candidates, hardware)
    return EngineSelection(kind, preference.engine, preference.options, "it is configured")


def _select_whisper(
    preference: EnginePreference,
    weights: Sequence[WhisperWeights],
    hardware: Hardware,
    *,
    has_torch: bool = False,
) -> EngineSelection:
    """Returns the best Whisper and its engine. `has_torch`: `whisper_torch` may be chosen if it was
    measured to be faster."""
    best, why, _ = best_whisper(weights, preference, hardware)
    benchmark = benchmark_on(best, hardware)
    if has_torch and benchmark is not None and benchmark.is_torch_faster:
        why += f"; {WHISPER_TORCH} was measured to be faster with it here"
        return EngineSelection("asr", WHISPER_TORCH, {"model": benchmark.checkpoint}, why)
    return EngineSelection("asr", WHISPER, {"model": str(best.path), **preference.options}, why)


def _better_sherpa(
    choice: EngineSelection,
    language: str,
    weights: Sequence[WhisperWeights],
    hardware: Hardware,
    sherpa: Sequence[SherpaWeights],
) -> EngineSelection | None:
    """Returns the model of sherpa-onnx that did better than the chosen Whisper on the user's own
    recordings; None if none did, or if the two were not measured in the same way."""
    whisper = next((model for model in weights if str(model.path) == choice.options["model"]), None)
    if choice.name != WHISPER or whisper is None or whisper.on_recordings is None:
        return None
    former = whisper.on_recordings
    if (former.language, former.device) != (language, device_name(hardware)):
        return None
    better = [
        (model, found)
        for model in sherpa
        if (found := model.on_recordings) is not None and found.is_better_than(former)
    ]
    if not better:
        return None
    best, found = min(better, key=lambda pair: (pair[1].word_errors_percent, pair[1].p50_ms))
    why = (
        f"measured on your recordings: {best.name} makes {found.summary()} per utterance,"
        f" {whisper.name} {former.summary()}"
    )
    return EngineSelection("asr", SHERPA, {"model": str(best.path)}, why)


class WhisperChoice(NamedTuple):
    """The best of several models, and the sentence that explains the choice."""

    model: WhisperWeights
    why: str
    "Reason for the choice, for people."
    is_untimed: bool
    "True: it will run on a GPU on which it was never timed. Only its memory was checked."


def best_whisper(
    weights: Sequence[WhisperWeights],
    preference: EnginePreference,
    hardware: Hardware,
    where: str = "in the models folder",
) -> WhisperChoice:
    """Returns the largest model that knows the language and keeps up with live speech, or the
    smallest if none keeps up. Of two models of one size, English gets the one that knows nothing
    else: it makes fewer errors.

    Uses the measured time if there is one, otherwise memory. `where`: words of the explanation for
    all the models.
    """
    is_untimed = False
    suitable_models = [model for model in weights if model.knows(preference.language)]
    fitting = [
        (model, device)
        for model in suitable_models or weights
        if (device := _suitable_device(model, preference, hardware)) is not None
    ]
    if fitting:
        best, device = max(fitting, key=lambda candidate: candidate[0].float16_mb)
        if preference.language == ENGLISH:
            same_size = [
                candidate
                for candidate in fitting
                if candidate[0].float16_mb >= SAME_SIZE * best.float16_mb
            ]
            best, device = min(same_size, key=lambda candidate: candidate[0].is_multilingual)
        why = f"{best.name} is the largest Whisper {where} that suits {device}"
        if benchmark := benchmark_on(best, hardware):
            why += f": {benchmark.best_ms:.0f} ms per utterance, measured"
        elif hardware.gpus and device != f"{hardware.cores} cores":
            is_untimed = True
            why += " by its memory; it was not timed there yet"
    else:
        best = min(suitable_models or weights, key=lambda model: model.float16_mb)
        device = f"{hardware.cores} cores"
        why = f"{best.name} is the smallest Whisper {where}; large for {device}"
    why += _too_slow(best, suitable_models or weights, hardware)
    return WhisperChoice(
        best, why + _english_only(weights, suitable_models, preference.language), is_untimed
    )


def _english_only(
    weights: Sequence[WhisperWeights], suitable_models: Sequence[WhisperWeights], language: str
) -> str:
    """Returns the models that do not know the language, as the end of a sentence."""
    names = ", ".join(model.name for model in weights if model not in suitable_models)
    if not names:
        return ""
    if not suitable_models:
        return f"; the language is {language!r}, and {names} knows English only"
    return f"; not for {language!r}, as English only: {names}"


def benchmark_on(model: WhisperWeights, hardware: Hardware) -> ModelBenchmark | None:
    """Returns the model's benchmark if it was measured on this very device; None otherwise."""
    benchmark = model.measured
    if benchmark is None or benchmark.device != device_name(hardware):
        return None
    return benchmark


def is_too_slow(model: WhisperWeights, hardware: Hardware) -> bool:
    """True if the model was measured on this very device, and takes longer than LIVE_MS."""
    benchmark = benchmark_on(model, hardware)
    return benchmark is not None and benchmark.best_ms > LIVE_MS


def _too_slow(best: WhisperWeights, weights: Sequence[WhisperWeights], hardware: Hardware) -> str:
    """Returns the larger models that were measured to be too slow, as the end of a sentence."""
    slow = [
        f"{model.name} takes {benchmark.best_ms:.0f} ms"
        for model in weights
        if model.float16_mb > best.float16_mb
        and (benchmark := benchmark_on(model, hardware)) is not None
        and benchmark.best_ms > LIVE_MS
    ]
    return f"; too slow beyond {LIVE_MS:.0f} ms: {', '.join(slow)}" if slow else ""


def _suitable_device(
    model: WhisperWeights, preference: EnginePreference, hardware: Hardware
) -> str | None:
    """Returns the name of the device that computes this model in time; None if there is none."""
    if is_too_slow(model, hardware):
        return None
    room = asr_memory(hardware, preference.memory_mb)
    try:
        placement = place_model(
            model.float16_mb, hardware, room, preference.options, preference.workers
        )
    except EngineMissing:
        return None
    if placement.workers[0].device != CPU:
        gpus = {f"cuda:{gpu.index}": gpu.name for gpu in hardware.gpus}
        return gpus[placement.workers[0].device]
    is_small = model.float16_mb <= _max_processor_mb(hardware)
    is_fast = is_small or benchmark_on(model, hardware) is not None
    fits = sum(worker.memory_mb for worker in placement.workers) <= room[CPU]
    return f"{hardware.cores} cores" if is_fast and fits else None


def _max_processor_mb(hardware: Hardware) -> float:
    """Returns the megabytes of weights (as float16) that the processor can compute in time."""
    if hardware.cores >= 8 and hardware.memory_gb >= 8:
        return 600.0  # small
    if hardware.cores >= 4 and hardware.memory_gb >= 4:
        return 200.0  # base
    return 100.0  # tiny


def worker_count(name: str, hardware: Hardware) -> int:
    """Returns the number of processes for a recogniser other than Whisper, if none is configured.

    PocketSphinx decodes one utterance at a time, and takes seconds for speech that is no command. A
    second process keeps that from delaying the other sessions.
    """
    return min(2, hardware.cores) if name in ONE_AT_A_TIME else 1
