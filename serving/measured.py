"""Which engine was faster with which model on this machine, as `earshot models bench` noted it."""

from pathlib import Path

from msgspec import DecodeError, Struct
from msgspec.json import decode as decode_json
from msgspec.json import encode as encode_json
from msgspec.json import format as format_json

from serving.hardware import Hardware

FILE = ".measured.json"
"In the models folder. Hidden, and worthless on another machine."


class Measured(Struct, frozen=True):
    """Both engines with the same model: milliseconds per utterance, median."""

    checkpoint: str
    "Folder that `whisper_torch` loads."
    faster_whisper_ms: float
    whisper_torch_ms: float
    device: str = ""
    "By `device_name`: a figure of another machine says nothing here."


def read_measured(models_dir: Path) -> dict[str, Measured]:
    """By the folder's name that `faster_whisper` loads. What cannot be read was never measured."""
    try:
        return decode_json((models_dir / FILE).read_bytes(), type=dict[str, Measured])
    except (OSError, DecodeError):
        return {}


def note_measured(models_dir: Path, name: str, measured: Measured) -> None:
    """Raises OSError."""
    found = {**read_measured(models_dir), name: measured}
    file = models_dir / FILE
    new = file.with_suffix(".new")
    new.write_bytes(format_json(encode_json(found)))
    new.replace(file)


def device_name(hardware: Hardware) -> str:
    """What recognition is computed on."""
    return hardware.gpus[0].name if hardware.gpus else f"{hardware.cores} cores"


def read_faster(models_dir: Path) -> dict[str, Measured]:
    """Models that `whisper_torch` is faster with, where the checkpoint is still there."""
    return {
        name: one
        for name, one in read_measured(models_dir).items()
        if one.whisper_torch_ms < one.faster_whisper_ms and Path(one.checkpoint).is_dir()
    }
