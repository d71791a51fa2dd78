"""Streams of a Mimi with random weights: the same sound as the whole clip, whoever else is there.

`test_proofs.py` runs this where torch is.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from bench.gpu.random_codecs import random_encodec, random_mimi, write
from core.errors import EngineError, OverloadedError
from engines.base.codec import CodecModel
from engines.codec.encodec import create as create_encodec
from engines.codec.mimi import Settings, create
from tests.engines.codec.tiny_codecs import TINY_ENCODEC, TINY_MIMI

BOOKS, FRAMES = 8, 40
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> CodecModel:
    folder = write(random_mimi(**TINY_MIMI), tmp_path_factory.mktemp("mimi"))
    return create(Settings(model=str(folder)))


@pytest.fixture(scope="module")
def codes() -> npt.NDArray[np.int16]:
    random = np.random.default_rng(0)
    return random.integers(0, TINY_MIMI["codebook_size"], (3, BOOKS, FRAMES)).astype(np.int16)


@pytest.fixture(scope="module")
def whole() -> npt.NDArray[np.float32]:
    """Returns what transformers decodes of all codes at once."""
    random = np.random.default_rng(0)
    codes = random.integers(0, TINY_MIMI["codebook_size"], (3, BOOKS, FRAMES))
    with torch.inference_mode():
        sound = random_mimi(**TINY_MIMI).decode(torch.from_numpy(codes)).audio_values[:, 0]
    return np.asarray(sound.numpy())


def test_a_stream_equals_the_whole_clip_and_sounds_after_one_frame(
    codec: CodecModel, codes: npt.NDArray[np.int16], whole: npt.NDArray[np.float32]
) -> None:
    streams = codec.open_streams(1)
    stream = streams.open()
    pieces = [streams.step({stream: codes[0, :, at : at + 1]})[stream] for at in range(FRAMES)]
    assert {len(piece) for piece in pieces} == {codec.info.frame_samples}
    assert np.abs(np.concatenate(pieces) - whole[0]).max() < TOLERANCE * np.abs(whole[0]).max()


def test_streams_join_wait_and_leave_without_a_trace_in_the_others(
    codec: CodecModel, codes: npt.NDArray[np.int16], whole: npt.NDArray[np.float32]
) -> None:
    streams = codec.open_streams(3, max_frames=4)
    first, second = streams.open(), streams.open()
    heard: dict[int, list[npt.NDArray[np.float32]]] = {first: [], second: []}

    def step(frames: dict[int, npt.NDArray[np.int16]]) -> None:
        for stream, sound in streams.step(frames).items():
            heard[stream].append(sound)

    for at in range(10):
        step({first: codes[0, :, at : at + 1], second: codes[1, :, at : at + 1]})
    streams.close(first)
    third = streams.open()
    heard[third] = []
    fourth = streams.open()
    with pytest.raises(OverloadedError, match=r"all 3 streams of codec\.mimi are open"):
        streams.open()
    for at in range(0, 28, 4):  # the second stream waits, and the fourth lies between them
        step({third: codes[2, :, at : at + 4]})
    step({second: codes[1, :, 10:12], third: codes[2, :, 28:30]})
    streams.close(fourth)
    for at in range(12, 20, 2):
        step({second: codes[1, :, at : at + 2]})
    for number, stream in enumerate((first, second, third)):
        sound = np.concatenate(heard[stream])
        expected = whole[number, : len(sound)]
        assert np.abs(sound - expected).max() < TOLERANCE * np.abs(whole).max(), number


def test_memory_is_allocated_once(codec: CodecModel, codes: npt.NDArray[np.int16]) -> None:
    streams = codec.open_streams(2)
    before = [buffer.data_ptr() for buffer in streams.buffers]  # type: ignore[attr-defined]
    for _ in range(3):
        one, two = streams.open(), streams.open()
        for at in range(5):
            streams.step({one: codes[0, :, at : at + 1], two: codes[1, :, at : at + 1]})
        streams.close(one)
        streams.step({two: codes[1, :, 5:6]})
        streams.close(two)
    after = [buffer.data_ptr() for buffer in streams.buffers]  # type: ignore[attr-defined]
    assert before == after
    assert not any(buffer.any() for buffer in streams.buffers)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        (np.zeros((8, 2), np.int16), "allowed: \\(codebooks, 1 to 1\\)"),
        (np.zeros((7, 1), np.int16), "7 codebooks; allowed: \\(2, 4, 8, 16\\)"),
        (np.full((8, 1), 64, np.int16), "a code is outside 0 to 63"),
        (np.full((8, 1), -1, np.int16), "a code is outside 0 to 63"),
    ],
)
def test_wrong_codes_are_refused(
    codec: CodecModel, frames: npt.NDArray[np.int16], problem: str
) -> None:
    streams = codec.open_streams(1)
    stream = streams.open()
    with pytest.raises(ValueError, match=problem):
        streams.step({stream: frames})


def test_a_closed_stream_is_refused(codec: CodecModel) -> None:
    streams = codec.open_streams(1)
    stream = streams.open()
    streams.close(stream)
    streams.close(stream)
    with pytest.raises(ValueError, match="stream 0 is not open"):
        streams.step({stream: np.zeros((8, 1), np.int16)})


def test_encodec_does_not_stream(tmp_path: Path) -> None:
    codec = create_encodec(Settings(model=str(write(random_encodec(**TINY_ENCODEC), tmp_path))))
    assert not codec.info.can_stream
    with pytest.raises(EngineError, match="cannot decode frame by frame"):
        codec.open_streams(1)
