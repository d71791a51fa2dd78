"""Engine for Smart Turn v3: a small network that decides by the sound if a sentence is finished.

It is from pipecat (BSD-2-Clause), has 8 MB, takes Whisper's features and knows 23 languages. The
weights come with `earshot models pull`, or inside an installed pipecat-ai: only the file is read,
the package is never imported. The path of another smart-turn-v3 ONNX file can be set.
"""

from importlib.util import find_spec
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from core.errors import EngineError, EngineMissing
from engines.runtime.mel_filters import FFT_SAMPLES, mel_filters

Features = npt.NDArray[np.float32]
"Features of shape (MELS, frames)."
Samples = npt.NDArray[np.float32]
"Audio as float32, -1 to 1, shape (samples,)."

MELS = 80
"Number of mel bands."

FRAME_SAMPLES = 160
"Step from one frame to the next: 10 ms at 16 kHz."

_MIN_POWER = 1e-10
_RANGE_DECADES = 8.0
"Dynamic range in decades. Values further below the loudest one are raised to this limit."


def log_mel(samples: Samples) -> Features:
    """Returns Whisper's log-mel features of a window of audio: n / 160 frames, values in about
    [-1, 1].

    Written from the definition: Radford et al. 2022 (25 ms Hann windows every 10 ms, 80 mels up to
    8 kHz, a range of 8 decades). It needs only numpy: faster-whisper has the same function, but
    takes a second to import. samples: 16 kHz, shape (n,).
    """
    half = FFT_SAMPLES // 2
    padded = np.pad(samples.astype(np.float64), half, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, FFT_SAMPLES)[::FRAME_SAMPLES]
    hann = np.hanning(FFT_SAMPLES + 1)[:-1]
    spectrum = np.fft.rfft(windows[: len(samples) // FRAME_SAMPLES] * hann)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    levels = np.log10(np.maximum(mel_filters(MELS) @ power.T, _MIN_POWER))
    features: Features = (np.maximum(levels, levels.max() - _RANGE_DECADES) / 4 + 1).astype(
        np.float32
    )
    return features


REQUIRES = {"onnxruntime": "onnxruntime"}

WINDOW_SAMPLES = 8 * ASR_RATE_HZ
"Length of the network's input: the last 8 s. Zeros are put in front of shorter utterances."
MIN_UTTERANCE_MS = 100
"Shortest utterance in ms; a shorter one is not speech."

CALIBRATION = (0.45, -0.8)
"""Slope and offset that correct the log-odds of the network's output. The network gives 0.95 and
more to 70 % of finished sentences, but also to a third of the pauses within a sentence. So the real
odds are 2 to 1, not 20 to 1. Outputs below 0.05 are correct. The values were fitted to 92 ends and
220 pauses of read speech in four languages, weighted as if both were equally frequent."""

_INPUT = "input_features"
_INPUT_SHAPE = [MELS, WINDOW_SAMPLES // FRAME_SAMPLES]
_EPSILON = 1e-7
_BUNDLED_FOLDER = "audio/turn/smart_turn/data"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `smart_turn`."""

    path: str | None = None
    """Path of a smart-turn-v3 ONNX file; None: the one in the models folder, else the one inside an
    installed pipecat-ai."""


class SmartTurnDetector:
    """An `EndOfTurnDetector`. Any number of threads may call it."""

    name = "smart_turn"

    def __init__(self, session: Any) -> None:
        self._session = session

    def probability(self, pcm: Pcm) -> float | None:
        """Returns the probability that the turn is over (see `EndOfTurnDetector.probability`)."""
        if len(pcm) < ms_to_samples(MIN_UTTERANCE_MS, ASR_RATE_HZ):
            return None
        window = np.zeros(WINDOW_SAMPLES, np.float32)
        last = pcm[-WINDOW_SAMPLES:]
        np.divide(last, 32768, out=window[-len(last) :], dtype=np.float32)
        loudness = np.sqrt(window.var() + _EPSILON)  # over all 8 s, including the silence
        features = log_mel((window - window.mean()) / loudness)
        (probabilities,) = self._session.run(None, {_INPUT: features[None]})
        return calibrate(float(probabilities.ravel()[0]))


def calibrate(raw: float) -> float:
    """Returns the probability that a pause ends the turn, if half of all pauses do.

    raw: output of the network, 0 to 1.
    """
    slope, offset = CALIBRATION
    bounded = min(1 - _EPSILON, max(_EPSILON, raw))
    return 1 / (1 + exp(-slope * log(bounded / (1 - bounded)) - offset))


def find_weights(settings: Settings) -> Path | None:
    """Returns the file that `create` would load; None if there is none."""
    if settings.path:
        path = Path(settings.path).expanduser()
        return path if path.is_file() else None
    spec = find_spec("pipecat")
    places = spec.submodule_search_locations if spec else None
    for place in places or ():
        files = sorted(Path(place, _BUNDLED_FOLDER).glob("smart-turn-v3*.onnx"))
        if files:
            return files[-1]
    return None


def missing_weights() -> str:
    """Returns why the engine cannot run with the default settings; empty if it can."""
    if find_weights(Settings()) is not None:
        return ""
    return "no weights; `earshot models pull smart-turn-v3` fetches them"


def create(settings: Settings) -> SmartTurnDetector:
    """Returns the engine.

    Raises EngineMissing without weights, EngineError for a file that is not a smart-turn-v3 model.
    """
    path = find_weights(settings)
    if path is None:
        detail = f"no weights at {settings.path}" if settings.path else missing_weights()
        raise EngineMissing("endpoint", "smart_turn", detail)
    return SmartTurnDetector(_load(path))


def _load(path: Path) -> Any:
    """Returns an `onnxruntime.InferenceSession`."""
    from onnxruntime import InferenceSession, SessionOptions
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, InvalidProtobuf

    options = SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1  # sessions share the cores
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    try:
        session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidGraph, InvalidProtobuf) as exc:
        raise EngineError("endpoint", "smart_turn", f"{path} is not an ONNX model") from exc
    expected = [(_INPUT, _INPUT_SHAPE)]
    if [(node.name, node.shape[1:]) for node in session.get_inputs()] != expected:
        raise EngineError("endpoint", "smart_turn", f"{path} is not a smart-turn-v3 model")
    return session
