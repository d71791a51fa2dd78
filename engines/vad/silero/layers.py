"""The layers of Silero's network in numpy, for one frame of one stream at a time.

Each layer owns its input arrays, and the layer before writes its output into them. A frame of 32 ms
takes some thirty small operations. To allocate memory for each would cost as much as they do.
"""

from math import tanh
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from core.audio import Pcm
from engines.vad.silero.weights import BINS, LSTM_UNITS, WINDOW_SAMPLES, Floats, SileroNetwork

FRAME_SAMPLES = 512
"Length of a frame: 32 ms, fixed by the network."

_CONTEXT_SAMPLES = 64
"Number of samples of the previous frame that the network needs before this one."
_MIRRORED_SAMPLES = 128
"Number of samples at the end of the frame that are repeated after it, in reverse order."
_HOP_SAMPLES = 128
"Distance between the starts of two spectra."
_SPECTRA = 4
"Number of spectra of a frame."

_SCALE = np.float32(1 / 32768)
_HALF, _ZERO = np.array(0.5, np.float32), np.array(0, np.float32)


class SpectrumLayer:
    """First layer: computes the magnitudes of four short spectra of the latest audio."""

    def __init__(self, window: Floats) -> None:
        self._window = window
        end = _CONTEXT_SAMPLES + FRAME_SAMPLES
        self.audio = np.zeros(end + _MIRRORED_SAMPLES, np.float32)
        self._context, self._frame = np.split(self.audio[:end], [_CONTEXT_SAMPLES])
        self._next_context = self._frame[-_CONTEXT_SAMPLES:]
        self._mirrored = self.audio[end:]
        # The last sample is the mirror, so it is not repeated.
        self._frame_end = self._frame[-2 : -2 - _MIRRORED_SAMPLES : -1]
        shape, step = (_SPECTRA, WINDOW_SAMPLES), self.audio.itemsize
        self._windows = as_strided(self.audio, shape, (_HOP_SAMPLES * step, step), writeable=False)
        self._weighted = np.zeros(shape, np.float32)
        self._spectra: Any = np.zeros((_SPECTRA, BINS), np.complex64)
        "`Any`, because numpy's type stubs know no Fourier transform of float32."

    def push(self, pcm: Pcm, magnitudes: Floats) -> None:
        """Takes a frame of FRAME_SAMPLES and writes its spectra to `magnitudes`, shape (4, 129)."""
        np.copyto(self._context, self._next_context)
        np.multiply(pcm, _SCALE, out=self._frame)
        np.copyto(self._mirrored, self._frame_end)
        np.multiply(self._windows, self._window, out=self._weighted)
        np.fft.rfft(self._weighted, out=self._spectra)
        np.abs(self._spectra, out=magnitudes)


class ConvolutionLayer:
    """Convolution over time with ReLU, computed as one matrix product.

    weights: shape (taps * channels in + 1, channels out), the bias as the last row.
    frames: number of output frames.
    """

    def __init__(self, weights: Floats, frames: int) -> None:
        self._weights = weights
        self._rows = np.ones((frames, len(weights)), np.float32)
        self.inputs = self._rows[:, :-1]
        """Input, written by the caller: one row per output frame, which holds all input frames of
        that output frame."""
        self._products = np.zeros((frames, weights.shape[1]), np.float32)

    def run(self, out: Floats) -> None:
        """Writes the result to `out`, shape (frames, channels out)."""
        np.matmul(self._rows, self._weights, out=self._products)
        np.maximum(self._products, _ZERO, out=out)


class ConvolutionStack:
    """Four convolutions that reduce four spectra to one row."""

    def __init__(self, weights: tuple[Floats, ...]) -> None:
        parts = zip(weights, (4, 2, 1, 1), strict=True)
        self._first, second, third, self._fourth = (ConvolutionLayer(*part) for part in parts)
        self._second, self._third = second, third
        for part in (self._first, second):
            part.inputs[:] = 0  # parts that are never written are padding
        before, self.magnitudes, after = np.split(self._first.inputs, 3, axis=1)
        "`magnitudes` is the input, shape (4, 129), written by the caller."
        self._neighbours = [
            (before[1:], self.magnitudes[:-1]),
            (after[:-1], self.magnitudes[1:]),
        ]
        self._first_outputs = np.zeros((4, 128), np.float32)
        first_outputs = self._first_outputs.reshape(-1)
        self._neighbours_of_second = [
            (second.inputs[0, 128:], first_outputs[: 2 * 128]),
            (second.inputs[1], first_outputs[128:]),
        ]
        self._third_inputs = third.inputs.reshape(2, 64)

    def run(self, out: Floats) -> None:
        """Writes the result to `out`, shape (1, 128)."""
        for neighbour, frames in self._neighbours:
            np.copyto(neighbour, frames)
        self._first.run(self._first_outputs)
        for neighbour, frames in self._neighbours_of_second:
            np.copyto(neighbour, frames)
        self._second.run(self._third_inputs)
        self._third.run(self._fourth.inputs)
        self._fourth.run(out)


class LstmLayer:
    """The LSTM and the last layer, which gives the probability of speech."""

    def __init__(self, network: SileroNetwork) -> None:
        self._weights, self._head = network.lstm, network.head
        self._bias = network.head_bias
        row = self._row = np.ones((1, 2 * LSTM_UNITS + 1), np.float32)
        self.inputs = row[:, :LSTM_UNITS]
        "Input, written by the caller, shape (1, 128)."
        self.output, self.cell = row[0, LSTM_UNITS:-1], np.zeros(LSTM_UNITS, np.float32)
        self._products = np.zeros((1, 4 * LSTM_UNITS), np.float32)
        self._gates = self._products[0, : 3 * LSTM_UNITS]
        self._input_gate, self._output_gate, self._forget_gate, self._cell_candidate = (
            self._products.reshape(4, LSTM_UNITS)
        )
        self.reset()

    def run(self) -> float:
        """Computes one step and returns the probability of speech in [0, 1]."""
        products, gates, cell, output = self._products, self._gates, self.cell, self.output
        np.matmul(self._row, self._weights, out=products)
        np.tanh(products, out=products)
        np.multiply(gates, _HALF, out=gates)
        np.add(gates, _HALF, out=gates)
        np.multiply(cell, self._forget_gate, out=cell)
        np.multiply(self._input_gate, self._cell_candidate, out=self._cell_candidate)
        np.add(cell, self._cell_candidate, out=cell)
        np.tanh(cell, out=output)
        np.multiply(output, self._output_gate, out=output)
        logit = float(np.maximum(output, _ZERO).dot(self._head)) + self._bias
        return (1 + tanh(logit / 2)) / 2

    def reset(self) -> None:
        """Clears the state."""
        self.output[:] = 0
        self.cell[:] = 0
