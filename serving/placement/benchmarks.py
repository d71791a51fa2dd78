"""Measured times of models on this machine, from `earshot models bench` or from one decode at a
start."""

from pathlib import Path

from msgspec import DecodeError, Struct
from msgspec.json import decode as decode_json
from msgspec.json import encode as encode_json
from msgspec.json import format as format_json

from serving.placement.hardware import Hardware

FILE = ".measured.json"
"File in the models folder. It is hidden, and useless on another machine."


class ModelBenchmark(Struct, frozen=True):
    """Measured times of one model, in ms per utterance, by engine."""

    checkpoint: str
    "Folder that `whisper_torch` loads; empty if that engine was not measured."
    faster_whisper_ms: float
    "Time with `faster_whisper`."
    whisper_torch_ms: float | None = None
    "Time with `whisper_torch`; None if that engine was not measured."
    device: str = ""
    "Device that was measured, by `device_name`. Times of another device are ignored."

    @property
    def is_torch_faster(self) -> bool:
        """True if `whisper_torch` took less time, and its checkpoint still exists."""
        torch_ms = self.whisper_torch_ms
        is_less = torch_ms is not None and torch_ms < self.faster_whisper_ms
        return is_less and Path(self.checkpoint).is_dir()

    @property
    def best_ms(self) -> float:
        """Time of the engine that would be chosen, in ms per utterance."""
        if self.is_torch_faster and self.whisper_torch_ms is not None:
            return self.whisper_torch_ms
        return self.faster_whisper_ms


def read_benchmarks(models_dir: Path) -> dict[str, ModelBenchmark]:
    """Returns the benchmarks by the folder name that `faster_whisper` loads. An unreadable file
    counts as empty."""
    try:
        return decode_json((models_dir / FILE).read_bytes(), type=dict[str, ModelBenchmark])
    except (OSError, DecodeError):
        return {}


def save_benchmark(models_dir: Path, name: str, benchmark: ModelBenchmark) -> None:
    """Adds the benchmark of one model to the file, or replaces it. Raises OSError."""
    replace_json(models_dir / FILE, {**read_benchmarks(models_dir), name: benchmark})


def replace_json(file: Path, value: object) -> None:
    """Writes a value as JSON. The file has the old or the new content at any time. Raises
    OSError."""
    new_file = file.with_suffix(".new")
    new_file.write_bytes(format_json(encode_json(value)))
    new_file.replace(file)


def device_name(hardware: Hardware) -> str:
    """Returns the name of the device that computes recognition."""
    return hardware.gpus[0].name if hardware.gpus else f"{hardware.cores} cores"
