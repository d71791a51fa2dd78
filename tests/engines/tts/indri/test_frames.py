"""Frames become ids and ids become frames; an id of the wrong codebook is an error."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engines.tts.indri.frames import Frames, FrameStream, codebook_at, may_stop, pack, unpack
from engines.tts.indri.token_layout import CODEBOOK_SIZE, CODEBOOKS
from tests.engines.tts.indri.checkpoint import layout

LAYOUT = layout()
CODES = st.integers(0, CODEBOOK_SIZE - 1)
FRAMES = st.integers(0, 6).flatmap(lambda n: arrays(np.int16, (CODEBOOKS, n), elements=CODES))


@given(FRAMES)
def test_packed_frames_are_unpacked(frames: Frames) -> None:
    ids = pack(frames, LAYOUT)
    assert len(ids) == frames.size
    assert np.array_equal(unpack(ids, LAYOUT), frames)


@given(FRAMES)
def test_every_id_is_of_the_codebook_whose_turn_it_is(frames: Frames) -> None:
    for position, one in enumerate(pack(frames, LAYOUT)):
        first = LAYOUT.first_code(codebook_at(position))
        assert first <= one < first + CODEBOOK_SIZE
        assert one - first == frames[position % CODEBOOKS, position // CODEBOOKS]


@given(FRAMES, st.integers(0, 48), st.integers(0, 48))
def test_the_end_and_an_incomplete_frame_are_left_out(frames: Frames, cut: int, more: int) -> None:
    ids = pack(frames, LAYOUT)[:cut]
    assert np.array_equal(unpack(ids, LAYOUT), frames[:, : len(ids) // CODEBOOKS])
    if may_stop(len(ids)):
        after = [LAYOUT.stop, *[LAYOUT.text] * more]
        assert np.array_equal(unpack([*ids, *after], LAYOUT), frames[:, : len(ids) // CODEBOOKS])


@given(FRAMES.filter(lambda frames: frames.size > 0), st.data())
def test_an_id_out_of_turn_is_refused_with_its_position(
    frames: Frames, data: st.DataObject
) -> None:
    ids = pack(frames, LAYOUT)
    position = data.draw(st.integers(0, len(ids) - 1))
    first = LAYOUT.first_code(codebook_at(position))
    others = st.integers(0, LAYOUT.stop).filter(lambda n: not first <= n < first + CODEBOOK_SIZE)
    ids[position] = data.draw(others)
    if ids[position] == LAYOUT.stop and may_stop(position):
        return
    with pytest.raises(ValueError, match=f"id {ids[position]} at position {position} is not of"):
        unpack(ids, LAYOUT)


@given(FRAMES, st.lists(st.integers(0, 4), max_size=20))
def test_frames_can_be_taken_at_any_time(frames: Frames, sizes: list[int]) -> None:
    stream, taken = FrameStream(LAYOUT), [np.zeros((CODEBOOKS, 0), np.int16)]
    ids = iter(pack(frames, LAYOUT))
    for size in sizes:
        for _, one in zip(range(5), ids, strict=False):
            assert not stream.push(one)
        taken.append(stream.take(size))
        assert taken[-1].shape[1] <= size
    for one in ids:
        stream.push(one)
    taken.append(stream.take(stream.frames))
    assert np.array_equal(np.concatenate(taken, axis=1), frames)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((7, 2)), np.zeros(8), np.full((8, 1), -1), np.full((8, 1), CODEBOOK_SIZE)],
    ids=["codebooks", "dimensions", "negative", "large"],
)
def test_wrong_frames_are_refused(wrong: npt.NDArray[np.float64]) -> None:
    with pytest.raises(ValueError, match=r"frames have the shape|codes are 0 to 2047"):
        pack(wrong.astype(np.int64), LAYOUT)
