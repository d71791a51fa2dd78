"""Pieces grow while a speech goes on, and clauses are joined without a click."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engines.tts.indri.chunks import FADE_SAMPLES, MAX_CHUNK_FRAMES, ChunkSizes, ClauseJoin

FRAME = 1920


@given(st.integers(0, 100))
def test_every_frame_is_decoded_in_growing_pieces(frames: int) -> None:
    sizes, waiting, pieces = ChunkSizes(), 0, []
    for _ in range(frames):
        waiting += 1
        if size := sizes.due(waiting, is_last=False):
            pieces.append(size)
            waiting -= size
    while size := sizes.due(waiting, is_last=True):
        pieces.append(size)
        waiting -= size
    assert sum(pieces) == frames
    assert pieces[:4] == [1, 2, 4, 8][: len(pieces[:4])] or frames < 15
    assert all(size <= MAX_CHUNK_FRAMES for size in pieces)


def test_the_first_frame_is_decoded_at_once() -> None:
    assert ChunkSizes().due(1, is_last=False) == 1


@given(st.lists(st.integers(1, 3), max_size=4))
def test_one_clause_is_unchanged(pieces: list[int]) -> None:
    sound = np.random.default_rng(0).uniform(-1, 1, sum(pieces) * FRAME).astype(np.float32)
    join, ends = ClauseJoin(), np.cumsum(pieces, dtype=int) * FRAME
    found = [join.push(part) for part in np.split(sound, ends)[:-1]]
    joined = np.concatenate([*found, join.end()])
    assert np.array_equal(joined, (sound * 32_767).astype(np.int16))


def test_two_clauses_overlap_by_a_fade() -> None:
    join = ClauseJoin()
    loud, quiet = np.full(FRAME, 0.5, np.float32), np.zeros(FRAME, np.float32)
    first = join.push(loud)
    join.start_clause()
    joined = np.concatenate([first, join.push(quiet), join.end()])
    assert len(joined) == 2 * FRAME - FADE_SAMPLES
    assert np.abs(np.diff(joined.astype(int))).max() < 100, "no click"


def test_loud_samples_are_clipped() -> None:
    join = ClauseJoin()
    join.push(np.full(FRAME, -2, np.float32))
    assert join.end().min() == -32_768
