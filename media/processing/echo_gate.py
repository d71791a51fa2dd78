"""The last crumbs of an echo: what a canceller leaves of a room's tail sounds like speech to a VAD.

A crumb is quieter than the echo could still be at that moment; a person who interrupts is louder,
and once heard is heard on.
"""

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm
from media.pcm import SILENCE_DBFS, dbfs

IS_ECHO_DB = 20
"What the canceller takes away so much of was echo, and tells its level."
CRUMB_DB = 6
"What is left of an echo and this far below it is a crumb."
DECAY_DB_PER_S = 60
"A room of 1 s reverberation; most die away faster."
OPEN_DB = 0
"What is louder than the echo could be is somebody,"
OPEN_MS = 300
"and so are the quiet ends of their words."
CLOSED = 0.1
"Gain on a crumb: down to the noise of a quiet room, not to a silence that sounds cut."


class ResidualEchoGate:
    """One microphone's; blocks of some 20 ms."""

    def __init__(self) -> None:
        self._echo_db = SILENCE_DBFS
        self._gain = 1.0
        self._open_ms = 0.0

    def push(self, heard: Pcm, cleaned: Pcm) -> Pcm:
        """`cleaned` with its crumbs turned down. Both of the same moment and length."""
        block_s = len(heard) / ASR_RATE_HZ
        self._echo_db -= DECAY_DB_PER_S * block_s
        self._open_ms -= 1000 * block_s
        heard_db, cleaned_db = dbfs(heard), dbfs(cleaned)
        if heard_db - cleaned_db > IS_ECHO_DB:
            self._echo_db = max(self._echo_db, heard_db)
        if cleaned_db >= self._echo_db + OPEN_DB:
            self._open_ms = OPEN_MS
        before = self._gain
        is_crumb = self._open_ms <= 0 and cleaned_db < self._echo_db - CRUMB_DB
        self._gain = CLOSED if is_crumb else 1.0
        if self._gain == before == 1:
            return cleaned
        return (cleaned * np.linspace(before, self._gain, len(cleaned))).astype(np.int16)
