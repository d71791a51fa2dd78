"""Computes Whisper's log-mel features, the input of models for turn detection.

Written from the definition: Radford et al. 2022 (25 ms Hann windows every 10 ms, 80 mels up to
8 kHz, a range of 8 decades). It needs only numpy: faster-whisper has the same function, but takes a
second to import.
"""

import numpy as np
import numpy.typing as npt

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
    """Returns the features of a window of audio: n / 160 frames, values in about [-1, 1].

    samples: 16 kHz, shape (n,).
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
