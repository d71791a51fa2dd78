"""The number of rows that a GPU has room for, from the sizes in a checkpoint."""

import json
from pathlib import Path

import pytest

from serving.placement.hardware import Gpu, Hardware
from serving.placement.whisper import asr_memory
from serving.placement.whisper_torch import place_torch_model, row_mb, weights_mb

TURBO = {
    "model_type": "whisper",
    "num_mel_bins": 128,
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "decoder_layers": 4,
    "decoder_attention_heads": 20,
    "vocab_size": 51866,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(TURBO))
    return tmp_path


def machine(gpu_gb: float) -> Hardware:
    gpus = (Gpu("card", gpu_gb, gpu_gb, "9.0", "580.1"),) if gpu_gb else ()
    return Hardware(cores=16, memory_gb=64, gpus=gpus)


@pytest.mark.parametrize(("gpu_gb", "rows"), [(0, 8), (141, 128), (12, 32), (4, 8)])
def test_rows_are_as_many_as_fit(folder: Path, gpu_gb: float, rows: int) -> None:
    hardware = machine(gpu_gb)
    seat = place_torch_model(folder, hardware, asr_memory(hardware), {"model": str(folder)})
    assert seat.rows == seat.options["max_batch"] == rows
    assert seat.device == ("cuda:0" if gpu_gb else "cpu")


def test_configured_options_take_precedence(folder: Path) -> None:
    hardware = machine(141)
    said = {"model": str(folder), "max_batch": 3, "device": "cpu"}
    seat = place_torch_model(folder, hardware, asr_memory(hardware), said)
    assert (seat.rows, seat.device, seat.options) == (3, "cpu", said)


def test_computed_sizes_equal_those_of_turbo(folder: Path) -> None:
    from engines.asr.whisper_torch.checkpoint import read_shape

    shape = read_shape(folder)
    assert weights_mb(shape, 2) == pytest.approx(1600, rel=0.03)
    assert row_mb(shape, 2) == pytest.approx(40, rel=0.02)
