"""Sizes of the pieces in which a speech is decoded, and the joints between its clauses."""

import numpy as np

from core.audio import Pcm
from engines.base.codec import Samples

FIRST_CHUNK_FRAMES = 1
"Frames of the first piece: the sound begins as early as it can."

MAX_CHUNK_FRAMES = 8
"Frames of the largest piece. A frame costs the codec less in a larger piece."

FADE_SAMPLES = 480
"Overlap of two clauses: 20 ms at 24 kHz."


class ChunkSizes:
    """Tells when enough frames wait. Each piece has twice the frames of the one before, so the
    sound of a piece lasts until the next one is written."""

    def __init__(self) -> None:
        self._next = FIRST_CHUNK_FRAMES

    def due(self, frames: int, *, is_last: bool) -> int:
        """Returns how many of the waiting `frames` are decoded now, 0 if none. `is_last`: the
        speech is over, and no more frames will come."""
        if is_last:
            return min(frames, MAX_CHUNK_FRAMES)
        if frames < self._next:
            return 0
        size, self._next = self._next, min(2 * self._next, MAX_CHUNK_FRAMES)
        return size


class ClauseJoin:
    """Joins clauses that were written apart. The end of one fades into the start of the next one,
    so that the joint makes no click."""

    def __init__(self) -> None:
        self._held = np.zeros(0, np.float32)
        "Last samples, which may have to fade out."
        self._starts_clause = False

    def push(self, sound: Samples) -> Pcm:
        """Takes the next samples, a frame or more, and returns those that are complete."""
        if self._starts_clause and len(self._held):
            rising = np.linspace(0, 1, len(self._held), dtype=np.float32)
            faded = sound[: len(rising)] * rising + self._held * (1 - rising)
            sound = np.concatenate([faded, sound[len(rising) :]])
        else:
            sound = np.concatenate([self._held, sound])
        self._starts_clause = False
        self._held = sound[-FADE_SAMPLES:]
        return _to_pcm(sound[:-FADE_SAMPLES])

    def start_clause(self) -> None:
        """Marks that the next samples belong to another clause."""
        self._starts_clause = True

    def end(self) -> Pcm:
        """Returns the rest of the sound after the last clause."""
        rest, self._held = self._held, self._held[:0]
        return _to_pcm(rest)


def _to_pcm(sound: Samples) -> Pcm:
    return np.clip(sound * 32_767, -32_768, 32_767).astype(np.int16)
