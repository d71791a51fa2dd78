"""Noise suppression by WebRTC's library: steady noise (fans, hiss, hum) becomes quieter, voices
stay.

Stateful, one object per session, no I/O. In mode "off" audio passes unchanged bit for bit.
"""

from typing import Protocol

import numpy as np
from pywebrtc_audio import NoiseSuppressor

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from media.processing.modes import NoiseMode

BLOCK_SAMPLES = ms_to_samples(10, ASR_RATE_HZ)
"Samples that the library takes at once: 10 ms. It cannot follow a stream in other pieces."
DELAY_MS = 6.0
"Delay of the output in ms: exactly the overlap of the library's windows."
LEVELS: dict[NoiseMode, int] = {"near_field": 0, "far_field": 2}
"Level of the library by mode. Levels 0 to 3 make white noise 6, 12, 18 and 21 dB quieter."


class NoiseSuppression(Protocol):
    """Noise suppression of one session, in any mode.

    Example:
        suppression = open_noise_reduction("far_field")
        cleaned = suppression.clean(pcm)    # int16 at 16 kHz, late by suppression.late_ms
    """

    late_ms: float
    "Delay of the output, in ms."

    def clean(self, pcm: Pcm) -> Pcm:
        """Returns as many samples with less noise. `pcm`: int16, 16 kHz, mono."""
        ...


class NoNoiseSuppression:
    """A `NoiseSuppression` that changes nothing."""

    late_ms = 0.0

    def clean(self, pcm: Pcm) -> Pcm:
        """See `NoiseSuppression.clean`."""
        return pcm


class WebRtcNoiseSuppression:
    """A `NoiseSuppression` for audio in whole blocks of 10 ms. Audio in other pieces is delayed by
    another 10 ms."""

    def __init__(self, level: int) -> None:
        """Creates the suppressor. `level`: 0 to 3, see `LEVELS`."""
        self._library = NoiseSuppressor(ASR_RATE_HZ, 1, level)
        self.late_ms = DELAY_MS
        self._pending: Pcm = np.zeros(0, np.int16)
        self._ready: Pcm = np.zeros(0, np.int16)

    def clean(self, pcm: Pcm) -> Pcm:
        """See `NoiseSuppression.clean`."""
        if not len(pcm) % BLOCK_SAMPLES and not len(self._pending) and not len(self._ready):
            return self._reduced(pcm)
        waiting = np.concatenate([self._pending, pcm])
        whole = len(waiting) - len(waiting) % BLOCK_SAMPLES
        ready = np.concatenate([self._ready, self._reduced(waiting[:whole])])
        self._pending = waiting[whole:]
        if len(ready) < len(pcm):
            ready = np.concatenate([np.zeros(BLOCK_SAMPLES, np.int16), ready])
        self._ready = ready[len(pcm) :]
        return ready[: len(pcm)]

    def _reduced(self, pcm: Pcm) -> Pcm:
        reduced: Pcm = self._library.process(pcm) if len(pcm) else pcm
        return reduced


def open_noise_reduction(mode: NoiseMode) -> NoiseSuppression:
    """Creates the noise suppression of one session. It takes about a second to learn the noise."""
    return NoNoiseSuppression() if mode == "off" else WebRtcNoiseSuppression(LEVELS[mode])
