"""Properties of codecs as their folders say, without weights."""

from pathlib import Path
from typing import Any

import pytest

from core.errors import EngineError, EngineMissing
from engines.codec.settings import CodecName, read_info
from tests.engines.codec.codec_folder import write_codec_folder

MIMI = {"model_type": "mimi", "codebook_size": 2048, "num_quantizers": 32}
ENCODEC = {"codebook_size": 1024, "target_bandwidths": [1.5, 3.0, 6.0, 12.0, 24.0]}


@pytest.mark.parametrize(
    ("name", "config", "frame_samples", "codebooks", "can_stream"),
    [
        ("mimi", MIMI, 1920, (2, 4, 8, 16), True),
        ("mimi", MIMI | {"num_quantizers": 8}, 1920, (2, 4, 8), True),
        ("encodec", ENCODEC, 320, (2, 4, 8, 16), False),
        ("encodec", ENCODEC | {"target_bandwidths": [1.5, 3.0]}, 320, (2, 4), False),
    ],
)
def test_the_configuration_says_what_a_codec_can_do(
    tmp_path: Path,
    name: CodecName,
    config: dict[str, Any],
    frame_samples: int,
    codebooks: tuple[int, ...],
    can_stream: bool,
) -> None:
    info = read_info(name, write_codec_folder(tmp_path / "codec", **config))
    assert (info.name, info.model, info.rate_hz) == (name, "codec", 24_000)
    assert (info.frame_samples, info.codebooks) == (frame_samples, codebooks)
    assert info.can_stream == can_stream


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (MIMI, "holds a model of type 'mimi'"),
        ({"audio_channels": 2}, "only causal models with one channel"),
        ({"use_causal_conv": False}, "only causal models with one channel"),
    ],
)
def test_a_model_that_cannot_be_run_is_refused(
    tmp_path: Path, config: dict[str, Any], problem: str
) -> None:
    folder = write_codec_folder(tmp_path / "codec", **config)
    with pytest.raises(EngineError, match=problem):
        read_info("encodec", folder)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    folder = write_codec_folder(tmp_path / "codec")
    (folder / missing).unlink()
    with pytest.raises(EngineMissing, match=missing):
        read_info("encodec", folder)
