"""Engine for microWakeWord: networks of 60 kB for microcontrollers, one for each wake word.

The library's wheel contains TensorFlow Lite and four words. One word costs 2 ms of CPU per second
of audio, and is detected some 200 ms after its end.
"""

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, MsgspecError, Struct

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from core.errors import ConfigError, EngineMissing
from engines.base.wake import (
    WakeWord,
    WakeWordDetection,
    WakeWordDetector,
    mark_stop_words,
)

EXTRA = "wake"
REQUIRES = {"pymicro_wakeword": "pymicro-wakeword"}

REPEAT_PAUSE_SAMPLES = ms_to_samples(1000, ASR_RATE_HZ)
"Pause after a detection in which the same word is not reported again: it is still audible."

DETECTION_DELAY_MS = {"alexa": 130, "okay_nabu": 110}
"""Shortest delay between the end of a word and its detection, in at least nine of ten cases. The
detection uses the mean of the last 150 ms, so it comes after the end of the word. Measured with
eSpeak's voices at three speeds, with a command directly after the word. Other words are sometimes
detected before they end."""

STEP_SAMPLES = 160
"Step of 10 ms, the library's smallest. Its detections are 30 ms apart."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `micro`."""

    folder: str | None = None
    "Folder of further words, as microWakeWord's training writes them: NAME.json and NAME.tflite."
    threshold: Annotated[float, Meta(gt=0, lt=1)] | None = None
    "Probability above which a word counts; None: the value from its training, 0.85 to 0.97."
    stop_words: tuple[str, ...] = ()
    """Names of the words that only end an answer: `stop`, if microWakeWord's model of that name is
    in `folder`."""


class _TrainingResult(Struct, frozen=True):
    """Part of a word's JSON file."""

    probability_cutoff: Annotated[float, Meta(gt=0, lt=1)]
    sliding_window_size: Annotated[int, Meta(ge=1, le=1000)]


class _MicroModelConfig(Struct, frozen=True):
    """Content of a word's JSON file, which its training has written. The library reads it too."""

    wake_word: str
    model: str
    micro: _TrainingResult
    trained_languages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _MicroModel:
    """A wake word with its files."""

    word: WakeWord
    config: Path
    network: Path
    threshold: float


class MicroWake:
    """A `WakeWordDetector`. Each stream has its own networks, because they hold its state."""

    def __init__(self, models: Sequence[_MicroModel]) -> None:
        from pymicro_wakeword import MicroWakeWord, MicroWakeWordFeatures

        self._models = models
        self._networks = [MicroWakeWord.from_config(model.config) for model in models]
        self._features: Any = MicroWakeWordFeatures()
        self._sample_count = 0
        self._pause_until = [0] * len(models)
        "Number of samples until which each word is not reported again."

    def push(self, pcm: Pcm) -> tuple[WakeWordDetection, ...]:
        """Returns the wake words in the next samples (see `WakeWordDetector.push`)."""
        detections: list[WakeWordDetection] = []
        for start in range(0, len(pcm), STEP_SAMPLES):
            step = pcm[start : start + STEP_SAMPLES]
            self._sample_count += len(step)
            for features in self._features.process_streaming(step.tobytes()):
                detections += self._detections(features)
        return tuple(detections)

    def reset(self) -> None:
        """Clears the state (see `WakeWordDetector.reset`)."""
        self._features.reset()
        for network in self._networks:
            network.reset()
        self._sample_count = 0
        self._pause_until = [0] * len(self._models)

    def _detections(self, features: Any) -> list[WakeWordDetection]:
        detections = []
        for index, (model, network) in enumerate(zip(self._models, self._networks, strict=True)):
            probability: float = network.process_streaming_prob(features) or 0.0
            if probability > model.threshold and self._sample_count >= self._pause_until[index]:
                self._pause_until[index] = self._sample_count + REPEAT_PAUSE_SAMPLES
                delay_samples = ms_to_samples(
                    DETECTION_DELAY_MS.get(model.word.name, 0), ASR_RATE_HZ
                )
                word_end = max(0, self._sample_count - delay_samples)
                detections.append(WakeWordDetection(model.word.name, self._sample_count, word_end))
        return detections


class MicroWakeEngine:
    """A `WakeWordEngine` for `MicroWake`."""

    name = "micro"

    def __init__(self, models: Mapping[str, _MicroModel], stop_names: Sequence[str] = ()) -> None:
        """Raises ConfigError if a stop word has no model."""
        self._models = models
        words = [model.word for model in models.values()]
        self.words = mark_stop_words(words, stop_names, self.name)

    def open(self, names: Sequence[str]) -> WakeWordDetector:
        """Returns a detector for these words (see `WakeWordEngine.open`)."""
        return MicroWake([self._models[name] for name in names])


def create(settings: Settings) -> MicroWakeEngine:
    """Returns the engine.

    Raises ConfigError for a folder or model that cannot be read, EngineMissing if the library does
    not run on this machine.
    """
    folders = [_package_folder() / "models"]
    if settings.folder is not None:
        folders.append(Path(settings.folder).expanduser())
        if not folders[-1].is_dir():
            raise ConfigError(f"wake.micro: the folder {folders[-1]} does not exist")
    files = [file for folder in folders for file in sorted(folder.glob("*.json"))]
    models = {file.stem: _read(file, settings.threshold) for file in files}
    engine = MicroWakeEngine(models, settings.stop_words)
    try:
        _check_networks(models.values())
        engine.open(tuple(models))
    except (OSError, RuntimeError, ValueError) as error:
        raise EngineMissing("wake", "micro", f"it does not run here: {error}") from error
    return engine


def _read(file: Path, threshold: float | None) -> _MicroModel:
    try:
        config = msgspec.json.decode(file.read_bytes(), type=_MicroModelConfig)
    except (OSError, MsgspecError) as error:
        raise ConfigError(f"wake.micro: {file} is not a microWakeWord model: {error}") from error
    network = file.parent / config.model
    if not network.is_file():
        raise ConfigError(f"wake.micro: {file} names the network {network}, which does not exist")
    word = WakeWord(file.stem, config.wake_word, config.trained_languages)
    return _MicroModel(word, file, network, threshold or config.micro.probability_cutoff)


def _check_networks(models: Iterable[_MicroModel]) -> None:
    """Raises ConfigError for a network that TensorFlow Lite rejects, and OSError if TensorFlow Lite
    cannot be loaded.

    Without this check the wake-word library would use the null pointer that it gets, and crash.
    """
    tensorflow_lite = _load_tensorflow_lite()
    load, make = tensorflow_lite.TfLiteModelCreateFromFile, tensorflow_lite.TfLiteInterpreterCreate
    load.argtypes, load.restype = [ctypes.c_char_p], ctypes.c_void_p
    make.argtypes, make.restype = [ctypes.c_void_p] * 2, ctypes.c_void_p
    tensorflow_lite.TfLiteModelDelete.argtypes = (
        tensorflow_lite.TfLiteInterpreterDelete.argtypes
    ) = [ctypes.c_void_p]
    for model in models:
        loaded = load(bytes(model.network.resolve()))
        interpreter = make(loaded, None) if loaded else None
        if interpreter:
            tensorflow_lite.TfLiteInterpreterDelete(interpreter)
        if loaded:
            tensorflow_lite.TfLiteModelDelete(loaded)
        if not interpreter:
            raise ConfigError(
                f"wake.micro: {model.network} is damaged, or is not a TensorFlow Lite model"
            )


def unavailable_reason() -> str:
    """Returns why the engine does not run on this machine; empty if it runs. The setting `auto`
    uses it. One cause is a C library that is older than the one that the wheel was built for."""
    try:
        _load_tensorflow_lite()
    except OSError as error:
        return f"installed, but does not run here: {error}"
    return ""


def _load_tensorflow_lite() -> ctypes.CDLL:
    library = next((_package_folder() / "lib").glob("*tensorflowlite_c.*"), None)
    if library is None:
        raise OSError("its wheel contains no TensorFlow Lite")
    return ctypes.CDLL(str(library))


def _package_folder() -> Path:
    """Returns the library's folder without loading TensorFlow Lite. Raises ImportError."""
    spec = find_spec("pymicro_wakeword")
    if spec is None or spec.origin is None:
        raise ImportError("No module named 'pymicro_wakeword'", name="pymicro_wakeword")
    return Path(spec.origin).parent
