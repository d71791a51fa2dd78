"""Audio of an utterance whose words may still change. It grows at its end and loses its
beginning."""

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms


class AudioBuffer:
    """Growing audio (16 kHz); positions are samples of the whole utterance."""

    def __init__(self) -> None:
        self._chunks: list[Pcm] = []
        self.start = 0
        "Sample of the utterance at which the buffer begins."
        self.end = 0
        "Samples of the utterance so far; one past the last one in the buffer."

    @property
    def duration_ms(self) -> float:
        """Length of the audio that the buffer holds, in ms."""
        return samples_to_ms(self.end - self.start, ASR_RATE_HZ)

    def push(self, pcm: Pcm) -> None:
        """Adds the next samples at the end."""
        self._chunks.append(pcm)
        self.end += len(pcm)

    def forget(self, before: int) -> None:
        """Drops the audio before this sample of the utterance."""
        if before > self.start:
            self._chunks = [self.pcm()[before - self.start :]]
            self.start = before

    def pcm(self) -> Pcm:
        """Returns all audio in the buffer, from `start` to `end`."""
        if len(self._chunks) != 1:
            self._chunks = [np.concatenate(self._chunks) if self._chunks else np.zeros(0, np.int16)]
        return self._chunks[0]
