"""Clips that are computed in segments, in batches and over memory that is allocated once, by codecs
with random weights. `test_proofs.py` runs this where torch is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.gpu.random_codecs import random_encodec, random_mimi, write
from engines.base.codec import Samples
from engines.codec.encodec import create as create_encodec
from engines.codec.mimi import create as create_mimi
from engines.codec.settings import Settings
from engines.codec.torch_layers.segmented_codec import SegmentedCodec
from tests.engines.codec.tiny_codecs import TINY_ENCODEC, TINY_MIMI

BOOKS, RATE_HZ = 4, 24_000
SECONDS = (0.5, 3.2, 7.9, 2.0, 0.0, 12.1, 0.01)

CREATE: dict[str, Callable[[Settings], SegmentedCodec]] = {
    "mimi": create_mimi,
    "encodec": create_encodec,
}


@pytest.fixture(scope="module", params=["mimi", "encodec"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = random_mimi(**TINY_MIMI) if request.param == "mimi" else random_encodec(**TINY_ENCODEC)
    return write(tiny, tmp_path_factory.mktemp("codecs") / request.param)


@pytest.fixture(scope="module")
def clips() -> list[Samples]:
    random = np.random.default_rng(0)
    return [random.normal(0, 0.2, round(s * RATE_HZ)).astype(np.float32) for s in SECONDS]


def _codec(folder: Path, **settings: Any) -> SegmentedCodec:
    return CREATE[folder.name](Settings(model=str(folder), device="cpu", **settings))


def test_codes_are_those_that_transformers_computes(folder: Path, clips: list[Samples]) -> None:
    codec = _codec(folder)
    clip = clips[1][: 20 * codec.info.frame_samples]
    (codes,) = codec.encode([clip], BOOKS)
    sound = torch.from_numpy(clip)[None, None]
    with torch.inference_mode():
        if folder.name == "mimi":
            expected = random_mimi(**TINY_MIMI).encode(sound, num_quantizers=BOOKS).audio_codes
        else:
            bandwidth = BOOKS * 6 * 75 / 1000  # 64 codes are 6 bits, 75 times a second
            model = random_encodec(**TINY_ENCODEC | {"target_bandwidths": [bandwidth]})
            expected = model.encode(sound, bandwidth=bandwidth).audio_codes[0]
    assert np.mean(codes == expected.numpy()) > 0.99
    assert codes.shape == (1, BOOKS, 20)


def test_a_batch_gives_what_each_clip_gives_alone(folder: Path, clips: list[Samples]) -> None:
    alone, together = _codec(folder), _codec(folder, rows=4, segment_s=20)
    size = alone.info.frame_samples
    codes = together.encode(clips, BOOKS)
    for clip, found in zip(clips, codes, strict=True):
        assert found.shape == (1, BOOKS, -(-len(clip) // size))
        (expected,) = alone.encode([clip], BOOKS)
        # Sums in another order may choose another code, which changes those of later codebooks.
        assert not found.size or np.mean(found == expected) > 0.98
    sound = together.decode(codes)
    for number, found in enumerate(codes):
        (expected_sound,) = alone.decode([found])
        assert len(sound[number]) == found.shape[2] * size
        np.testing.assert_allclose(sound[number], expected_sound, atol=1e-3)


def test_a_long_clip_in_segments_has_no_seam(folder: Path, clips: list[Samples]) -> None:
    whole, cut = _codec(folder, segment_s=20), _codec(folder, segment_s=3, overlap_s=1, rows=2)
    (codes,) = whole.encode([clips[5]], BOOKS)
    (smooth,), (joined,) = whole.decode([codes]), cut.decode([codes])
    error = np.abs(joined - smooth).max() / np.abs(smooth).max()
    step = np.abs(np.diff(joined)).max() / np.abs(np.diff(smooth)).max()
    print(f"{folder.name}: error {error:.6f} of the peak, largest step {step:.3f} of the whole's")
    assert joined.shape == smooth.shape
    assert step < 1.2


def test_a_long_clip_of_mimi_sounds_as_transformers_decodes_it(
    tmp_path: Path, clips: list[Samples]
) -> None:
    codec = create_mimi(Settings(model=str(write(random_mimi(**TINY_MIMI), tmp_path)), rows=2))
    codes = codec.encode([clips[5], clips[1]], BOOKS)
    for found, clip in zip(codec.decode(codes), codes, strict=True):
        with torch.inference_mode():
            model = random_mimi(**TINY_MIMI)
            whole = model.decode(torch.from_numpy(clip).long()).audio_values[0, 0].numpy()
        assert np.abs(found - whole).max() < 1e-4 * np.abs(whole).max()


def test_buffers_stay_where_they_are(folder: Path, clips: list[Samples]) -> None:
    codec = _codec(folder, rows=2, segment_s=2)

    def places() -> list[int]:
        return [codec._sound.data_ptr(), codec._codes.data_ptr(), codec.buffer_bytes]

    before = places()
    for _ in range(2):
        codec.decode(codec.encode(clips, BOOKS))
    assert places() == before


def test_what_the_codec_lacks_is_refused(folder: Path, clips: list[Samples]) -> None:
    codec = _codec(folder)
    with pytest.raises(ValueError, match="3 codebooks; allowed"):
        codec.encode(clips, 3)
    with pytest.raises(ValueError, match="a code is outside 0 to 63"):
        codec.decode([np.full((1, BOOKS, 3), 64, np.int16)])
    with pytest.raises(ValueError, match="one number of codebooks"):
        codec.decode([np.zeros((1, books, 3), np.int16) for books in (2, 4)])
