"""Raw 16-bit PCM as it comes over a network."""

from collections.abc import Iterator

import numpy as np

from core.audio import Pcm


class PcmStream:
    """Bytes cut anywhere -> samples. A last half sample is no sound and stays here."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._odd = b""

    def push(self, data: bytes) -> Iterator[Pcm]:
        """Pieces of at most `max_bytes`."""
        data = self._odd + data
        even = len(data) - len(data) % 2
        self._odd = data[even:]
        for start in range(0, even, self._max_bytes):
            piece = data[start : min(start + self._max_bytes, even)]
            yield np.frombuffer(piece, "<i2").astype(np.int16)
