"""Measures how loud a wake word, or the sound after it, is at a device's microphone."""

from collections import deque

import numpy as np

from core.audio import ASR_RATE_HZ, PTIME_MS, Pcm, ms_to_samples
from media.pcm import SILENCE_DBFS

FRAME_SAMPLES = ms_to_samples(PTIME_MS, ASR_RATE_HZ)

LOUDEST_FRAMES = 5
"""Frames that count, the loudest: 100 ms. A wake word has pauses, and silence precedes it."""

FULL_SCALE = 32_768
"Largest sample of 16 bits, plus one."


class SoundLevelMeter:
    """Measures the level of the last sound of a stream: the mean of its loudest 100 ms."""

    def __init__(self, window_ms: int) -> None:
        """window_ms: length of the sound that is measured; older sound is forgotten."""
        self._powers: deque[float] = deque(maxlen=window_ms // PTIME_MS)
        self._rest: Pcm = np.zeros(0, np.int16)

    def push(self, pcm: Pcm) -> None:
        """Takes the next samples, int16 at 16 kHz, shape (n,)."""
        samples = np.concatenate([self._rest, pcm])
        count = len(samples) // FRAME_SAMPLES
        self._rest = samples[count * FRAME_SAMPLES :]
        frames = samples[: count * FRAME_SAMPLES].reshape(count, FRAME_SAMPLES)
        self._powers.extend(np.mean(frames.astype(np.float64) ** 2, axis=1).tolist())

    @property
    def is_full(self) -> bool:
        """True if the whole window is measured."""
        return len(self._powers) == self._powers.maxlen

    @property
    def level_dbfs(self) -> float | None:
        """Returns the level; None before the first 20 ms."""
        if not self._powers:
            return None
        loudest = sorted(self._powers)[-LOUDEST_FRAMES:]
        power = sum(loudest) / len(loudest) / FULL_SCALE**2
        return max(SILENCE_DBFS, 10 * float(np.log10(power))) if power else SILENCE_DBFS
