"""Placement of `whisper_torch`: its device and its number of rows. Pure, except that it reads the
checkpoint's sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.asr.whisper_torch.checkpoint import ModelShape, read_shape
from serving.placement.hardware import Hardware
from serving.placement.whisper import (
    CPU,
    CPU_BASE_MB,
    GPU_BASE_MB,
    MODEST_SHARE,
    MemoryByDevice,
    usable_gpus,
)

GPU_ROWS, CPU_ROWS = (128, 64, 32, 16, 8), 8
"""Numbers of rows (requests decoded at once). On a GPU the largest that leaves room to spare is
taken."""

TORCH_MB = 400.0
"Memory of the library itself, in addition to that of every worker."


@dataclass(frozen=True, slots=True)
class TorchPlacement:
    """Placement of the one worker."""

    device: str
    "`cpu`, or `cuda:0` and so on."
    options: Mapping[str, Any] = field(repr=False)
    "Settings of the engine."
    rows: int
    "Number of requests that are decoded at once."
    size_mb: float
    "Size of the checkpoint on disk."
    memory_mb: float
    "Estimated memory of the worker."
    why: str
    "Phrase that describes where and how the model runs."


def place_torch_model(
    folder: Path, hardware: Hardware, room: MemoryByDevice, options: Mapping[str, Any]
) -> TorchPlacement:
    """Returns the placement of a checkpoint. `options`: the configured ones, which win. Raises
    ConfigError for a folder without a checkpoint."""
    shape = read_shape(folder)
    size_mb = sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e6
    gpus, _ = usable_gpus(hardware)
    gpus = tuple(gpu for gpu in gpus if gpu.index == options.get("device_index", gpu.index))
    on_gpu = bool(gpus) and options.get("device") != CPU
    device = f"cuda:{gpus[0].index}" if on_gpu else CPU
    number_bytes = 2 if on_gpu else 4
    base_mb = (GPU_BASE_MB if on_gpu else CPU_BASE_MB) + TORCH_MB + weights_mb(shape, number_bytes)
    each_mb = row_mb(shape, number_bytes)
    rows = options.get("max_batch") or CPU_ROWS
    if on_gpu and "max_batch" not in options:
        most_mb = MODEST_SHARE * room[device]
        fitting = [rows for rows in GPU_ROWS if base_mb + rows * each_mb <= most_mb]
        rows = fitting[0] if fitting else GPU_ROWS[-1]
    where: dict[str, Any] = {"device": CPU}
    if on_gpu:
        where = {"device": "cuda", "device_index": gpus[0].index}
    name = gpus[0].name if on_gpu else "the processor"
    own = {key: value for key, value in options.items() if (key, value) != ("device", "auto")}
    return TorchPlacement(
        device=device,
        options={**where, "max_batch": rows, **own},
        rows=rows,
        size_mb=size_mb,
        memory_mb=base_mb + rows * each_mb,
        why=f"on {name} (torch, {rows} rows)",
    )


def weights_mb(shape: ModelShape, number_bytes: int) -> float:
    """Returns the size of the whole model in MB. An encoder layer has 12 times the squared width of
    numbers, a decoder layer 16 times, and each token has one row. `number_bytes`: bytes of a
    number."""
    layers = 12 * shape.encoder_layers + 16 * shape.decoder_layers
    return number_bytes * (layers * shape.width**2 + shape.vocabulary * shape.width) / 1e6


def row_mb(shape: ModelShape, number_bytes: int) -> float:
    """Returns the MB of the keys and values that one row keeps for its text and audio."""
    positions = shape.text_positions + shape.audio_positions
    return number_bytes * 2 * shape.decoder_layers * shape.width * positions / 1e6
