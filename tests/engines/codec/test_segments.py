"""Segments of clips: together they are the whole clip, once, whatever its length."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engines.codec.segments import batches, cut, join_codes, join_sound

LENGTHS = st.lists(st.integers(0, 90), max_size=6)
FRAME_SAMPLES = 3


@given(LENGTHS, st.integers(2, 30), st.data())
def test_codes_of_all_segments_are_the_codes_of_the_clips(
    lengths: list[int], segment: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, segment - 1))
    clips = [np.arange(2 * n).reshape(1, 2, n).astype(np.int16) for n in lengths]
    joined = [np.full_like(clip, -1) for clip in clips]
    for piece in cut(lengths, segment, overlap):
        whole = clips[piece.clip][0, :, piece.start : piece.start + piece.frames]
        padded = np.full((2, segment), 7, np.int16)
        padded[:, : piece.frames] = whole
        join_codes(joined[piece.clip], piece, padded)
    for clip, expected in zip(joined, clips, strict=True):
        np.testing.assert_array_equal(clip, expected)


@given(LENGTHS, st.integers(2, 30), st.data())
def test_segments_that_agree_are_faded_into_the_same_sound(
    lengths: list[int], segment: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, segment // 2))
    clips = [np.linspace(-1, 1, n * FRAME_SAMPLES, dtype=np.float32) for n in lengths]
    joined = [np.zeros_like(clip) for clip in clips]
    for piece in cut(lengths, segment, overlap):
        start = piece.start * FRAME_SAMPLES
        padded = np.full(segment * FRAME_SAMPLES, 9, np.float32)
        whole = clips[piece.clip][start : start + piece.frames * FRAME_SAMPLES]
        padded[: len(whole)] = whole
        join_sound(joined[piece.clip], piece, padded, FRAME_SAMPLES)
    for clip, expected in zip(joined, clips, strict=True):
        np.testing.assert_allclose(clip, expected, atol=1e-5)


def test_where_two_segments_differ_the_sound_changes_step_by_step() -> None:
    sound = np.zeros(14, np.float32)
    for value, piece in enumerate(cut([14], 9, 4)):
        join_sound(sound, piece, np.full(9, value, np.float32), 1)
    assert np.abs(np.diff(sound)).max() < 0.21
    assert (sound[4], sound[-1]) == (0, 1)


@given(LENGTHS, st.integers(1, 5))
def test_batches_have_each_segment_once_and_like_lengths_together(
    lengths: list[int], rows: int
) -> None:
    segments = cut(lengths, 20, 4)
    found = list(batches(segments, rows))
    flat = [segment for batch in found for segment in batch]
    assert sorted(flat, key=repr) == sorted(segments, key=repr)
    assert all(len(batch) <= rows for batch in found)
    assert [s.frames for s in flat] == sorted((s.frames for s in segments), reverse=True)
