"""Settings of the codecs, and their properties as their folders say, without the weights."""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct

from core.errors import EngineError, EngineMissing
from engines.base.codec import CodecInfo

CodecName = Literal["mimi", "encodec"]
"Names of the codecs, which are also the `model_type` of their config.json."

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"

CODEBOOKS = (2, 4, 8, 16)
"Numbers of codebooks that callers may ask for, if the model has so many."

CPU_SEGMENT_S, GPU_SEGMENT_S = 10.0, 5.0
"""Length of a segment in seconds. Less is computed twice with longer ones. On a processor each is
computed alone, and takes some 75 MB of memory per second. On a GPU the segments of a batch are as
long as the longest."""

GPU_ROWS = 16
"Number of segments that a GPU computes together."


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engines `mimi` and `encodec`."""

    model: Annotated[str, Meta(min_length=1)]
    "Folder of the model: config.json and model.safetensors, as transformers writes them."
    device: Annotated[str, Meta(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"
    threads: Annotated[int, Meta(ge=0, le=256)] = 0
    "Threads on a processor; 0: torch decides."
    segment_s: Annotated[float, Meta(ge=2, le=60)] | None = None
    "Longest sound that is computed at once, in seconds; None: 10 on a processor, 5 on a GPU."
    overlap_s: Annotated[float, Meta(ge=0.1, le=1)] = 0.5
    "Sound in seconds that two segments of one clip have in common."
    rows: Annotated[int, Meta(ge=1, le=64)] | None = None
    "Number of segments that are computed together; None: 1 on a processor, 16 on a GPU."


def read_info(name: CodecName, folder: Path) -> CodecInfo:
    """Returns the properties of the codec in a folder. Raises EngineMissing if files are missing,
    EngineError if it is another model, or of a form that the engine cannot run."""
    config = read_config(folder)
    if config is None:
        raise EngineMissing("codec", name, f"no readable {CONFIG_FILE} in {folder}")
    if not (folder / WEIGHTS_FILE).is_file():
        raise EngineMissing("codec", name, f"no {WEIGHTS_FILE} in {folder}")
    if (found := config.get("model_type")) != name:
        raise EngineError("codec", name, f"{folder} holds a model of type {found!r}")
    return codec_info(name, config, folder.name)


def codec_info(name: CodecName, config: Mapping[str, Any], model: str) -> CodecInfo:
    """Returns the properties of a codec with this configuration. `model`: its name. Raises
    EngineError for a form that the engine cannot run."""
    is_mimi = name == "mimi"
    ratios = (8, 6, 5, 4) if is_mimi else (8, 5, 4, 2)
    if config.get("audio_channels", 1) != 1 or not config.get("use_causal_conv", True):
        raise EngineError("codec", name, "only causal models with one channel can be run")
    rate_hz = int(config.get("sampling_rate", 24_000))
    # Mimi halves the rate of its convolutions.
    frame_samples = prod(config.get("upsampling_ratios") or ratios) * (2 if is_mimi else 1)
    size = int(config.get("codebook_size", 2048 if is_mimi else 1024))
    books = int(config.get("num_quantizers", 32))
    if not is_mimi:
        bandwidth_kbps = max(config.get("target_bandwidths") or (24.0,))
        bits_per_frame = bandwidth_kbps * 1000 * frame_samples / rate_hz
        books = int(bits_per_frame // (size.bit_length() - 1))
    return CodecInfo(
        name=name,
        model=model,
        rate_hz=rate_hz,
        frame_samples=frame_samples,
        codebooks=tuple(count for count in CODEBOOKS if count <= books),
        codebook_size=size,
        can_stream=is_mimi,
    )


def read_config(folder: Path) -> Mapping[str, Any] | None:
    """Returns the config.json of a folder; None if there is none, or if it is no JSON object."""
    try:
        config: object = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def codec_name(folder: Path) -> CodecName | None:
    """Returns the engine that runs the codec in a folder; None if there is no codec in it."""
    if not (folder / WEIGHTS_FILE).is_file():
        return None
    kind = (read_config(folder) or {}).get("model_type")
    return next((name for name in get_args(CodecName) if name == kind), None)
