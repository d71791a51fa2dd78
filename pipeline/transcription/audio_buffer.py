"""Audio of one utterance. It is kept once: code that needs a part of it takes a view."""

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms

FIRST_MS = 4000
"""Room for a command and its pre-roll. A longer utterance doubles it, so that each sample is copied
about once more."""

_FIRST = ms_to_samples(FIRST_MS, ASR_RATE_HZ)


class AudioBuffer:
    """Growing audio (16 kHz); positions are samples of the utterance.

    Samples are added at the end and never change, so views of them stay true.
    """

    def __init__(self) -> None:
        self._room: Pcm = np.zeros(0, np.int16)
        self.end = 0
        "Samples so far; also the position of the next one."

    @property
    def duration_ms(self) -> float:
        """Length of all audio, in ms."""
        return samples_to_ms(self.end, ASR_RATE_HZ)

    def push(self, pcm: Pcm) -> None:
        """Adds the next samples. The first ones are not copied, so they must not change."""
        needed = self.end + len(pcm)
        if self.end == 0:
            self._room = pcm
        else:
            if needed > len(self._room):
                room = np.empty(max(needed, _FIRST, 2 * len(self._room)), np.int16)
                room[: self.end] = self._room[: self.end]
                self._room = room
            self._room[self.end : needed] = pcm
        self.end = needed

    def pcm(self, start: int = 0) -> Pcm:
        """Returns a view of the audio from sample `start` on."""
        return self._room[start : self.end]
