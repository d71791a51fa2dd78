"""Computes the network of GE2E in numpy: an LSTM that reads windows of 1.6 s of a spectrogram."""

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from core.errors import EngineError
from engines.speaker.ge2e.speech import FRAME_SAMPLES, MELS, Mels, Samples, mel_spectrogram

Floats = npt.NDArray[np.float32]

WEIGHTS_FILE = "ge2e.npz"
"File of the weights in the model's folder."

WINDOW_FRAMES = 160
"Length of a window: the network was trained on 1.6 s."

STEP_FRAMES = 77
"Step from one window to the next: 1.3 windows per second, as the authors use it."

MIN_COVERAGE = 0.75
"Share of the last window that must be sound. With less, the window is left out."

GATES = 4
"Gates of an LSTM in the order of torch: input, forget, cell, output."


ROWS = 3
"""Windows that are multiplied at once. OpenBLAS rearranges the matrix in memory for more than
three, which takes longer than to multiply again: five windows take 57 ms in place of 70."""


@dataclass(frozen=True, slots=True)
class RecurrentLayer:
    """Weights of one LSTM layer. The three gates with a sigmoid are scaled by a half, because a
    sigmoid is a tanh of half the value: so one tanh computes all four gates."""

    of_input: Floats
    "Shape (inputs, GATES * hidden)."
    of_state: Floats
    "Shape (hidden, GATES * hidden)."
    bias: Floats
    "Shape (GATES * hidden,)."

    @classmethod
    def from_torch(cls, of_input: Floats, of_state: Floats, bias: Floats) -> "RecurrentLayer":
        """Takes the matrices of torch, whose first dimension are the gates."""
        hidden = of_state.shape[1]
        scale = np.full(GATES * hidden, 0.5, np.float32)
        scale[2 * hidden : 3 * hidden] = 1.0
        return cls(
            np.ascontiguousarray((of_input * scale[:, None]).T),
            np.ascontiguousarray((of_state * scale[:, None]).T),
            bias * scale,
        )

    def run(self, projected: Floats) -> Floats:
        """Returns the states after each step. `projected`: the inputs multiplied with `of_input`,
        with the bias; shape (steps, windows, GATES * hidden)."""
        hidden = self.of_state.shape[0]
        steps, windows, _ = projected.shape
        states = np.empty((steps, windows, hidden), np.float32)
        gates = np.empty((windows, GATES * hidden), np.float32)
        state, cell = np.zeros((2, windows, hidden), np.float32)
        parts = [slice(first, first + ROWS) for first in range(0, windows, ROWS)]
        for step in range(steps):
            for part in parts:
                np.matmul(state[part], self.of_state, out=gates[part])
            gates += projected[step]
            np.tanh(gates, out=gates)
            write, keep, new, show = (gates[:, i * hidden : (i + 1) * hidden] for i in range(GATES))
            cell = 0.5 * ((1 + keep) * cell + (1 + write) * new)
            state = states[step]
            np.multiply(0.5 * (1 + show), np.tanh(cell), out=state)
        return states


class Ge2eNetwork:
    """The network with its weights."""

    def __init__(self, arrays: dict[str, Floats]) -> None:
        """Takes the arrays by torch's names. Raises EngineError if one is missing or has another
        shape than the others demand."""
        try:
            count = sum(name.startswith("lstm.weight_hh_l") for name in arrays)
            self._layers = [_layer(arrays, index) for index in range(count)]
            self._weight, self._bias = arrays["linear.weight"].T, arrays["linear.bias"]
        except KeyError as error:
            raise _damaged(f"it has no array {error.args[0]}") from error
        if not self._layers:
            raise _damaged("it has no LSTM")
        sizes = [MELS, *(layer.of_state.shape[0] for layer in self._layers)]
        for index, layer in enumerate(self._layers):
            _check(f"layer {index}", layer.of_input, (sizes[index], GATES * sizes[index + 1]))
            _check(f"layer {index}", layer.of_state, (sizes[index + 1], GATES * sizes[index + 1]))
        _check("the linear layer", self._weight, (sizes[-1], len(self._bias)))
        self.dimensions = len(self._bias)

    @classmethod
    def load(cls, folder: Path) -> "Ge2eNetwork":
        """Reads the weights. Raises EngineError if the file is missing or damaged."""
        return cls(_read_arrays(folder))

    def embed(self, speech: Samples) -> Floats:
        """Returns the vector of speech without long silences, shape (dimensions,), length 1: the
        mean of the vectors of its windows."""
        starts = window_starts(len(speech))
        end = (starts[-1] + WINDOW_FRAMES) * FRAME_SAMPLES
        mels = mel_spectrogram(np.pad(speech, (0, max(0, end - len(speech)))))
        mean = self._windows(mels, starts).mean(axis=0)
        vector: Floats = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return vector

    def _windows(self, mels: Mels, starts: list[int]) -> Floats:
        """Returns a vector of length 1 for each window that begins at one of these frames."""
        first, *others = self._layers
        # Windows overlap, so a frame is multiplied once for all of them.
        projected = mels @ first.of_input + first.bias
        frames = np.arange(WINDOW_FRAMES)[:, None] + np.array(starts)
        states = first.run(projected[frames])
        for layer in others:
            steps, windows, inputs = states.shape
            flat = states.reshape(steps * windows, inputs) @ layer.of_input + layer.bias
            states = layer.run(flat.reshape(steps, windows, -1))
        vectors = np.maximum(states[-1] @ self._weight + self._bias, 0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        normalized: Floats = vectors / np.maximum(lengths, 1e-12)
        return normalized


def read_dimensions(folder: Path) -> int:
    """Returns the length of the vectors, without reading all weights. Raises EngineError if the
    file is missing or damaged."""
    bias = _read_arrays(folder, only=("linear.bias",)).get("linear.bias")
    if bias is None:
        raise _damaged("it has no array linear.bias")
    return len(bias)


def _read_arrays(folder: Path, only: tuple[str, ...] = ()) -> dict[str, Floats]:
    """Reads arrays by name; all of them if `only` is empty. Raises EngineError."""
    path = folder / WEIGHTS_FILE
    try:
        with np.load(path) as arrays:
            names = [name for name in arrays.files if not only or name in only]
            return {name: np.atleast_1d(arrays[name]).astype(np.float32) for name in names}
    except (OSError, ValueError, BadZipFile, EOFError) as error:
        raise _damaged(f"{path} cannot be read: {error}") from error


def window_starts(samples: int) -> list[int]:
    """Returns the first frame of each window of speech that is `samples` long; at least one."""
    frames = samples // FRAME_SAMPLES + 1
    starts = [*range(0, max(1, frames - WINDOW_FRAMES + STEP_FRAMES + 1), STEP_FRAMES)]
    covered = samples - starts[-1] * FRAME_SAMPLES
    if len(starts) > 1 and covered < MIN_COVERAGE * WINDOW_FRAMES * FRAME_SAMPLES:
        starts.pop()
    return starts


def _layer(arrays: dict[str, Floats], index: int) -> RecurrentLayer:
    of_input, of_state = (arrays[f"lstm.weight_{kind}_l{index}"] for kind in ("ih", "hh"))
    bias = arrays[f"lstm.bias_ih_l{index}"] + arrays[f"lstm.bias_hh_l{index}"]
    if of_state.ndim != 2 or of_state.shape[0] != GATES * of_state.shape[1]:
        raise _damaged(f"layer {index} has states of the shape {of_state.shape}")
    if bias.shape != of_state.shape[:1]:
        raise _damaged(f"layer {index} has a bias of the shape {bias.shape}")
    _check(f"layer {index}", of_input.T, (of_input.shape[-1], of_state.shape[0]))
    return RecurrentLayer.from_torch(of_input, of_state, bias)


def _check(what: str, array: Floats, expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise _damaged(f"{what} has the shape {array.shape} instead of {expected}")


def _damaged(why: str) -> EngineError:
    return EngineError("speaker", "ge2e", f"the weights cannot be used: {why}")
