"""Computes Whisper's log-mel features, the input of models for turn detection.

Written from the definition: Radford et al. 2022 (25 ms Hann windows every 10 ms, 80 mels up to
8 kHz, a range of 8 decades), Slaney's Auditory Toolbox for the mel scale (linear up to 1 kHz).
It needs only numpy: faster-whisper has the same function, but takes a second to import.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ

Features = npt.NDArray[np.float32]
"Features of shape (MELS, frames)."
Samples = npt.NDArray[np.float32]
"Audio as float32, -1 to 1, shape (samples,)."

MELS = 80
"Number of mel bands."

FRAME_SAMPLES = 160
"Step from one frame to the next: 10 ms at 16 kHz."

_FFT_SAMPLES = 400
_MIN_POWER = 1e-10
_RANGE_DECADES = 8.0
"Dynamic range in decades. Values further below the loudest one are raised to this limit."

_LINEAR_HZ = 200 / 3
"Hz per mel below the break."
_BREAK_HZ, _BREAK_MEL = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27
"Step of log(Hz) per mel above the break."


def log_mel(samples: Samples) -> Features:
    """Returns the features of a window of audio: n / 160 frames, values in about [-1, 1].

    samples: 16 kHz, shape (n,).
    """
    half = _FFT_SAMPLES // 2
    padded = np.pad(samples.astype(np.float64), half, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _FFT_SAMPLES)[::FRAME_SAMPLES]
    hann = np.hanning(_FFT_SAMPLES + 1)[:-1]
    spectrum = np.fft.rfft(windows[: len(samples) // FRAME_SAMPLES] * hann)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    levels = np.log10(np.maximum(_filters() @ power.T, _MIN_POWER))
    features: Features = (np.maximum(levels, levels.max() - _RANGE_DECADES) / 4 + 1).astype(
        np.float32
    )
    return features


@cache
def _filters() -> npt.NDArray[np.float64]:
    """Returns the mel filters: triangles of equal area, shape (MELS, bins)."""
    top_mel = _BREAK_MEL + np.log(ASR_RATE_HZ / 2 / _BREAK_HZ) / _LOG_STEP
    mels = np.linspace(0, top_mel, MELS + 2)
    linear, curved = mels * _LINEAR_HZ, _BREAK_HZ * np.exp(_LOG_STEP * (mels - _BREAK_MEL))
    edges = np.where(mels < _BREAK_MEL, linear, curved)
    bins = np.linspace(0, ASR_RATE_HZ / 2, _FFT_SAMPLES // 2 + 1)
    low, centre, high = (edges[first : first + MELS, None] for first in range(3))
    rise, fall = (bins - low) / (centre - low), (high - bins) / (high - centre)
    triangles = np.maximum(0, np.minimum(rise, fall))
    filters: npt.NDArray[np.float64] = triangles * 2 / (high - low)
    return filters
