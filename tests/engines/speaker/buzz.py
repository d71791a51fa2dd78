"""Sound that a voice activity detector takes for a voice."""

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm

HARMONICS = 24


def buzz(seconds: float, *, level: float = 0.1, pitch_hz: float = 140.0) -> npt.NDArray[np.float32]:
    """Returns a buzz with syllables, four in a second, at 16 kHz. level: of its first harmonic."""
    at = np.arange(round(seconds * ASR_RATE_HZ)) / ASR_RATE_HZ
    numbers = np.arange(1, HARMONICS + 1)[:, None]
    voice = (np.sin(2 * np.pi * pitch_hz * numbers * at) / numbers).sum(axis=0)
    syllables = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * at)
    return np.asarray(level * voice * syllables, np.float32)


def buzz_pcm(seconds: float, *, pitch_hz: float = 140.0) -> Pcm:
    """Returns the same as 16-bit samples."""
    return (buzz(seconds, pitch_hz=pitch_hz) * 32767).astype(np.int16)
