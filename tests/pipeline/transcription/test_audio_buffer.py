"""The buffer keeps the samples of an utterance once, and parts of it are views."""

import numpy as np
import pytest

from core.audio import Pcm, ms_to_samples
from pipeline.transcription.audio_buffer import FIRST_MS, AudioBuffer

ROOM = ms_to_samples(FIRST_MS, 16_000)


def ramp(samples: int) -> Pcm:
    return (np.arange(samples) % 30_000).astype(np.int16)


@pytest.mark.parametrize("size", [1, 320, 5000, ROOM, 3 * ROOM])
def test_the_buffer_returns_what_was_pushed_in_any_sizes(size: int) -> None:
    whole, buffer = ramp(3 * ROOM if size > 1 else 2000), AudioBuffer()
    for at in range(0, len(whole), size):
        buffer.push(whole[at : at + size])
    assert buffer.end == len(whole)
    assert np.array_equal(buffer.pcm(), whole)
    assert np.array_equal(buffer.pcm(1000), whole[1000:])
    assert len(buffer.pcm(buffer.end)) == 0


def test_views_stay_valid_while_the_buffer_grows() -> None:
    buffer = AudioBuffer()
    buffer.push(ramp(320))
    views = []
    for _ in range(3 * ROOM // 320):
        buffer.push(ramp(320))
        views.append(buffer.pcm(320))
    assert all(np.array_equal(one, np.tile(ramp(320), len(one) // 320)) for one in views[::50])


def test_the_first_block_and_the_returned_views_are_not_copied() -> None:
    first, buffer = ramp(ROOM), AudioBuffer()
    buffer.push(first)
    assert np.shares_memory(buffer.pcm(), first)
    buffer.push(ramp(320))
    assert np.shares_memory(buffer.pcm(), buffer.pcm(ROOM))
    assert np.array_equal(first, ramp(ROOM))  # it was not written to
