"""Frames of PCM audio as all parts of Earshot use them, and conversions between samples and
time."""

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
"Audio per frame. RTP, jitter buffer, VAD and server-paced playout all count in it."


class AudioFrame(NamedTuple):
    """Mono 16-bit PCM; usually one ptime (20 ms) long.

    A tuple, because many are made, and a tuple is made several times faster than a frozen
    dataclass.
    """

    pcm: Pcm
    "Samples, shape (n,)."
    rate_hz: int
    "Sample rate in Hz."
    start: int
    "Index of the first sample since its stream began. The pipeline has no other audio clock."

    @property
    def duration_ms(self) -> float:
        return samples_to_ms(len(self.pcm), self.rate_hz)

    @property
    def end(self) -> int:
        """Index one past the last sample."""
        return self.start + len(self.pcm)


def silence(duration_ms: float, rate_hz: int) -> Pcm:
    """Returns zeros for this length of audio, shape (n,)."""
    return np.zeros(ms_to_samples(duration_ms, rate_hz), np.int16)
