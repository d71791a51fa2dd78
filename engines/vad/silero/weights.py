"""Loads the weights of Silero VAD v6 in the layout that `layers` computes with.

The network computes the magnitudes of four short spectra, four convolutions over time with ReLU,
one step of an LSTM, and a weighted sum of its output. This is what the graph in the file says.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.errors import EngineMissing
from engines.runtime.model_files.onnx_file import OnnxLayer, layers

Floats = npt.NDArray[np.float32]
"Array of float32 of any shape."

WINDOW_SAMPLES = 256
"Number of samples of one spectrum."
BINS = WINDOW_SAMPLES // 2 + 1
"Number of frequency bins of a window's spectrum."

LSTM_UNITS = 128
"Size of the LSTM's output, and of its cell state."

_SHAPES = [
    ("Conv", [(2 * BINS, 1, WINDOW_SAMPLES)]),
    ("Conv", [(128, BINS, 3), (128,)]),
    ("Conv", [(64, 128, 3), (64,)]),
    ("Conv", [(64, 64, 3), (64,)]),
    ("Conv", [(LSTM_UNITS, 64, 3), (LSTM_UNITS,)]),
    (
        "LSTM",
        [(1, 4 * LSTM_UNITS, LSTM_UNITS), (1, 4 * LSTM_UNITS, LSTM_UNITS), (1, 8 * LSTM_UNITS)],
    ),
    ("Conv", [(1, LSTM_UNITS, 1), (1,)]),
]
"Operator and shapes of the weights of every layer. They identify the file."

_TAPS = [slice(0, 3), slice(0, 3), slice(1, 3), slice(1, 2)]
"""Taps of each convolution that are used. The convolutions have 4, 2, 1 and 1 frames, so the other
taps are multiplied with padding only."""

_MAX_DIFFERENCE = 1e-5
"Largest allowed difference of the first layer from a Fourier transform."


@dataclass(frozen=True, slots=True)
class SileroNetwork:
    """Weights of Silero. They are read-only, so any number of streams and threads may share
    them."""

    window: Floats
    "Factors of the samples before a spectrum is computed, shape (256,)."
    convolutions: tuple[Floats, ...]
    "Four arrays of shape (taps * channels in + 1, channels out), the bias as the last row."
    lstm: Floats
    """Weights of the LSTM, shape (257, 512). Rows: input, previous output, bias. Columns: input,
    output and forget gate, cell candidate. The weights of the gates are halved, because sigmoid(x)
    = (1 + tanh(x / 2)) / 2."""
    head: Floats
    "Weights of the last layer, shape (128,)."
    head_bias: float


def load_network(path: str | None) -> SileroNetwork:
    """Loads the weights from `path`, or from the file inside the faster-whisper wheel.

    Raises EngineMissing if there is no file, or if it holds another network.
    """
    file = Path(path) if path else bundled_weights()
    if not file.is_file():
        raise EngineMissing("vad", "silero", f"no weights at {file}")
    _limit_blas_threads()
    try:
        return _network(layers(file.read_bytes(), {"Conv", "LSTM"}))
    except ValueError as exc:
        raise EngineMissing("vad", "silero", f"{file} is not Silero VAD v6: {exc}") from exc


def _network(loaded_layers: list[OnnxLayer]) -> SileroNetwork:
    shapes = [(layer.kind, [weights.shape for weights in layer.weights]) for layer in loaded_layers]
    if shapes != _SHAPES:
        raise ValueError(f"its layers are {shapes}, but must be {_SHAPES}")
    spectrum, *convolutions, lstm, head = (layer.weights for layer in loaded_layers)
    return SileroNetwork(
        window=_fourier_window(spectrum[0][:, 0]),
        convolutions=tuple(
            _with_bias_row(weights[:, :, taps].transpose(2, 1, 0).reshape(-1, len(bias)), bias)
            for (weights, bias), taps in zip(convolutions, _TAPS, strict=True)
        ),
        lstm=_lstm_rows(*lstm),
        head=head[0][0, :, 0],
        head_bias=float(head[1][0]),
    )


def _limit_blas_threads() -> None:
    """Limits numpy's matrix products to one thread, in the whole process.

    A frame is 40 us of work, too little for several threads. With two threads a frame took 300 us,
    and twenty frames kept both threads busy for 2.7 ms; one thread needs 0.3 ms for them.
    """
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")


def _fourier_window(basis: Floats) -> Floats:
    """Returns the window of the first convolution, whose matrix is a windowed Fourier transform.
    Raises ValueError for another matrix."""
    # Replaces the matrix by a fast Fourier transform, which takes a fifth of the time.
    window: Floats = basis[0]  # cos 0 is 1, so the first row is the window itself
    turns = np.outer(np.arange(BINS), np.arange(WINDOW_SAMPLES)) / WINDOW_SAMPLES
    cosine, sine = np.cos(2 * np.pi * turns), -np.sin(2 * np.pi * turns)
    if not np.allclose(
        basis, window * np.concatenate([cosine, sine]), rtol=0, atol=_MAX_DIFFERENCE
    ):
        raise ValueError("its first layer is not a Fourier transform")
    return window


def _lstm_rows(inputs: Floats, outputs: Floats, biases: Floats) -> Floats:
    """Returns `SileroNetwork.lstm` from the weights of ONNX's operator."""
    rows = np.concatenate([inputs[0].T, outputs[0].T])
    step = _with_bias_row(rows, biases[0, : 4 * LSTM_UNITS] + biases[0, 4 * LSTM_UNITS :])
    step[:, : 3 * LSTM_UNITS] *= 0.5
    return step


def _with_bias_row(weights: Floats, bias: Floats) -> Floats:
    return np.concatenate([weights, bias[None]])


def bundled_weights() -> Path:
    """Returns the path of the file in the faster-whisper wheel. Raises ImportError without it."""
    # faster-whisper is not imported: that would take a second.
    spec = find_spec("faster_whisper")
    if spec is None or spec.origin is None:
        raise ImportError("No module named 'faster_whisper'", name="faster_whisper")
    return Path(spec.origin).parent / "assets" / "silero_vad_v6.onnx"
