"""Fills the place of lost audio."""

import numpy as np

from core.audio import Pcm


class Concealer:
    """Remembers the last audio. PyAV exposes neither Opus PLC nor FEC, so this stands in."""

    def __init__(self, fade_samples: int) -> None:
        self._fade = fade_samples
        self._last = np.zeros(0, np.int16)

    def heard(self, pcm: Pcm) -> None:
        self._last = pcm[-self._fade :]

    def fill(self, samples: int) -> Pcm:
        """Exactly `samples`: the last audio backwards (so it joins without a click), faded out.

        What is longer than the fade is silence, and so is a second fill in a row.
        """
        filled = np.zeros(samples, np.int16)
        count = min(samples, len(self._last))
        fade = np.linspace(1, 0, len(self._last), dtype=np.float32)
        filled[:count] = (self._last[::-1] * fade)[:count]
        self._last = self._last[:0]
        return filled
