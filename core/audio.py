"""Frames of PCM audio as all parts of Earshot use them, and conversions between samples and time.

It imports only numpy: `bench.gpu` uses it on machines where nothing else of the server is
installed.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Pcm = npt.NDArray[np.int16]
"Mono signed 16-bit samples, shape (n,)."

ASR_RATE_HZ = 16_000
"Sample rate of the pipeline's input: VAD and ASR engines take it."


def samples_to_ms(samples: int, rate_hz: int) -> float:
    """Returns the length of `samples` samples in ms."""
    return 1000 * samples / rate_hz


def ms_to_samples(ms: float, rate_hz: int) -> int:
    """Returns the number of samples in `ms`, rounded to the nearest whole number."""
    return round(ms * rate_hz / 1000)


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
