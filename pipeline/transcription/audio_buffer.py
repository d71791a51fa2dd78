"""The audio of an utterance whose words are not fixed yet: it grows, and loses its beginning."""

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms


class AudioBuffer:
    def __init__(self) -> None:
        self._chunks: list[Pcm] = []
        self.start = 0
        "Where it begins, in the utterance."
        self.end = 0
        "Samples of the utterance so far."

    @property
    def duration_ms(self) -> float:
        return samples_to_ms(self.end - self.start, ASR_RATE_HZ)

    def push(self, pcm: Pcm) -> None:
        self._chunks.append(pcm)
        self.end += len(pcm)

    def forget(self, before: int) -> None:
        """What lies before this sample of the utterance is not needed any more."""
        if before > self.start:
            self._chunks = [self.pcm()[before - self.start :]]
            self.start = before

    def pcm(self) -> Pcm:
        """All of it."""
        if len(self._chunks) != 1:
            self._chunks = [np.concatenate(self._chunks) if self._chunks else np.zeros(0, np.int16)]
        return self._chunks[0]
