import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from media.pcm import Framer
from tests.media.signals import assert_continuous, joined


@given(st.lists(st.integers(0, 1000), max_size=20))
def test_chunks_of_any_size_become_exact_frames(sizes: list[int]) -> None:
    total = sum(sizes)
    pcm = np.arange(total, dtype=np.int64).astype(np.int16)
    framer = Framer(16000)
    frames = [frame for part in np.split(pcm, np.cumsum(sizes)) for frame in framer.push(part)]
    assert len(frames) == total // 320
    if (rest := framer.flush()) is not None:
        frames.append(rest)
    assert framer.flush() is None
    if frames:
        assert_continuous(frames, 16000)
        assert np.array_equal(joined(frames)[:total], pcm)
        assert not joined(frames)[total:].any()
    assert len(frames) == -(-total // 320)


def test_frames_start_at_the_given_position() -> None:
    framer = Framer(24000, 60, start=480)
    (frame,) = framer.push(np.zeros(1440, np.int16))
    assert (frame.start, frame.end) == (480, 1920)


def test_a_rate_without_whole_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="11025"):
        Framer(11025)
