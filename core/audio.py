"""PCM audio as every part of Earshot sees it, and the arithmetic between samples and time."""

from typing import NamedTuple

import numpy as np

from core.pcm import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms

__all__ = [
    "ASR_RATE_HZ",
    "PTIME_MS",
    "AudioFrame",
    "Pcm",
    "ms_to_samples",
    "samples_to_ms",
    "silence",
]

PTIME_MS = 20
"Audio per frame. RTP, jitter buffer, VAD and paced playout all count in it."


class AudioFrame(NamedTuple):
    """Mono s16 PCM; usually one ptime (20 ms) long.

    A tuple, for one is made several times faster than a frozen dataclass, and many are.
    """

    pcm: Pcm
    "Samples, shape (n,)."
    rate_hz: int
    "Sample rate in Hz."
    start: int
    "Index of the first sample since its stream began: our only audio clock."

    @property
    def duration_ms(self) -> float:
        return samples_to_ms(len(self.pcm), self.rate_hz)

    @property
    def end(self) -> int:
        """Index one past the last sample."""
        return self.start + len(self.pcm)


def silence(duration_ms: float, rate_hz: int) -> Pcm:
    return np.zeros(ms_to_samples(duration_ms, rate_hz), np.int16)
