"""WebRTC's noise suppressor: steady noise (fans, hiss, hum) becomes quieter, voices stay.

Stateful, one per session, no I/O. Off: audio passes bit for bit.
"""

from typing import Protocol

import numpy as np
from pywebrtc_audio import NoiseSuppressor

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from media.processing.modes import NoiseMode

BLOCK = ms_to_samples(10, ASR_RATE_HZ)
"The library works on 10 ms: of other pieces it would lose the place."
DELAY_MS = 6.0
"What comes out is later than what went in by exactly this, the overlap of its windows."
LEVELS: dict[NoiseMode, int] = {"near_field": 0, "far_field": 2}
"The library's: 0 to 3 make white noise 6, 12, 18 and 21 dB quieter."


class NoiseSuppression(Protocol):
    """What a session asks of either."""

    late_ms: float
    "By which what is heard comes later."

    def clean(self, pcm: Pcm) -> Pcm:
        """16 kHz audio -> as many samples with less noise."""
        ...


class NoNoiseSuppression:
    """A `NoiseSuppression` that leaves everything as it is."""

    late_ms = 0.0

    def clean(self, pcm: Pcm) -> Pcm:
        """See `NoiseSuppression.clean`."""
        return pcm


class WebRtcNoiseSuppression:
    """A `NoiseSuppression` for audio in whole blocks of 10 ms; other pieces come 10 ms later
    yet."""

    def __init__(self, level: int) -> None:
        """`level`: 0 to 3, see `LEVELS`."""
        self._library = NoiseSuppressor(ASR_RATE_HZ, 1, level)
        self.late_ms = DELAY_MS
        self._rest: Pcm = np.zeros(0, np.int16)
        self._ready: Pcm = np.zeros(0, np.int16)

    def clean(self, pcm: Pcm) -> Pcm:
        """See `NoiseSuppression.clean`."""
        if not len(pcm) % BLOCK and not len(self._rest) and not len(self._ready):
            return self._reduced(pcm)
        waiting = np.concatenate([self._rest, pcm])
        whole = len(waiting) - len(waiting) % BLOCK
        ready = np.concatenate([self._ready, self._reduced(waiting[:whole])])
        self._rest = waiting[whole:]
        if len(ready) < len(pcm):
            ready = np.concatenate([np.zeros(BLOCK, np.int16), ready])
        self._ready = ready[len(pcm) :]
        return ready[: len(pcm)]

    def _reduced(self, pcm: Pcm) -> Pcm:
        reduced: Pcm = self._library.process(pcm) if len(pcm) else pcm
        return reduced


def open_noise_reduction(mode: NoiseMode) -> NoiseSuppression:
    """One session's; it takes about a second to learn the noise."""
    return NoNoiseSuppression() if mode == "off" else WebRtcNoiseSuppression(LEVELS[mode])
