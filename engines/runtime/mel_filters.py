"""Computes the mel filters of Slaney's Auditory Toolbox, linear up to 1 kHz, which Whisper and
librosa use."""

from functools import cache

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ

FFT_SAMPLES = 400
"Length of the spectrum's window: 25 ms at 16 kHz."

_LINEAR_HZ = 200 / 3
"Hz per mel below the break."
_BREAK_HZ, _BREAK_MEL = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27
"Step of log(Hz) per mel above the break."


@cache
def mel_filters(mels: int) -> npt.NDArray[np.float64]:
    """Returns the filters up to 8 kHz: triangles of equal area, shape (mels, FFT_SAMPLES / 2 + 1).
    `mels`: number of bands."""
    top_mel = _BREAK_MEL + np.log(ASR_RATE_HZ / 2 / _BREAK_HZ) / _LOG_STEP
    edge_mels = np.linspace(0, top_mel, mels + 2)
    linear = edge_mels * _LINEAR_HZ
    curved = _BREAK_HZ * np.exp(_LOG_STEP * (edge_mels - _BREAK_MEL))
    edges = np.where(edge_mels < _BREAK_MEL, linear, curved)
    bins = np.linspace(0, ASR_RATE_HZ / 2, FFT_SAMPLES // 2 + 1)
    low, centre, high = (edges[first : first + mels, None] for first in range(3))
    rise, fall = (bins - low) / (centre - low), (high - bins) / (high - centre)
    triangles = np.maximum(0, np.minimum(rise, fall))
    filters: npt.NDArray[np.float64] = triangles * 2 / (high - low)
    return filters
