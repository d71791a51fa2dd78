"""Silero VAD v6: a small recurrent network that tells voices from other sounds, even music.

The weights come inside the faster-whisper wheel (Silero VAD is MIT-licensed).
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from core.audio import Pcm
from core.errors import EngineMissing
from engines.base import Vad

REQUIRES = {"onnxruntime": "onnxruntime", "faster_whisper": "faster-whisper"}

FRAME_SAMPLES = 512
"32 ms, fixed by the network."

_CONTEXT_SAMPLES = 64
"The network wants the end of the last frame in front of this one."

_STATE_SHAPE = (1, 1, 128)


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    path: str | None = None
    "Another silero_vad_v6.onnx; None uses the one inside faster-whisper."


class SileroVad:
    """A `Vad`. The network is shared, the LSTM state and the context are this stream's."""

    frame_samples = FRAME_SAMPLES
    _input: npt.NDArray[np.float32]
    _h: npt.NDArray[np.float32]
    _c: npt.NDArray[np.float32]

    def __init__(self, session: Any) -> None:
        self._session = session
        self.reset()

    def push(self, pcm: Pcm) -> float:
        """See `Vad.push`."""
        self._input[0, :_CONTEXT_SAMPLES] = self._input[0, -_CONTEXT_SAMPLES:]
        np.divide(pcm, 32768, out=self._input[0, _CONTEXT_SAMPLES:])
        probability, self._h, self._c = self._session.run(
            None, {"input": self._input, "h": self._h, "c": self._c}
        )
        return float(probability[0])

    def reset(self) -> None:
        """See `Vad.reset`."""
        self._input = np.zeros((1, _CONTEXT_SAMPLES + FRAME_SAMPLES), np.float32)
        self._h = np.zeros(_STATE_SHAPE, np.float32)
        self._c = np.zeros(_STATE_SHAPE, np.float32)


class SileroVadEngine:
    """A `VadEngine`."""

    name = "silero"

    def __init__(self, session: Any) -> None:
        self._session = session

    def open(self) -> Vad:
        return SileroVad(self._session)


def create(settings: Settings) -> SileroVadEngine:
    """Raises EngineMissing when there are no weights."""
    return SileroVadEngine(load_network(settings))


def load_network(settings: Settings) -> Any:
    """An `onnxruntime.InferenceSession`; its `run` may be called by any number of streams."""
    path = Path(settings.path) if settings.path else _bundled()
    if not path.is_file():
        raise EngineMissing("vad", "silero", f"no weights at {path}")

    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1  # 0.1 ms of work: no team
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    return InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _bundled() -> Path:
    """Found without importing faster-whisper, which takes a second."""
    spec = find_spec("faster_whisper")
    if spec is None or spec.origin is None:
        raise ImportError("No module named 'faster_whisper'", name="faster_whisper")
    return Path(spec.origin).parent / "assets" / "silero_vad_v6.onnx"
