"""How long models take on this machine: by `earshot models bench`, or by one decode at a start."""

from pathlib import Path

from msgspec import DecodeError, Struct
from msgspec.json import decode as decode_json
from msgspec.json import encode as encode_json
from msgspec.json import format as format_json

from serving.placement.hardware import Hardware

FILE = ".measured.json"
"In the models folder. Hidden, and worthless on another machine."


class ModelBenchmark(Struct, frozen=True):
    """Milliseconds per utterance with one model, of each engine that was measured."""

    checkpoint: str
    "Folder that `whisper_torch` loads; empty: that was not measured."
    faster_whisper_ms: float
    whisper_torch_ms: float | None = None
    device: str = ""
    "By `device_name`: a figure of another machine says nothing here."

    @property
    def is_torch_faster(self) -> bool:
        """`whisper_torch` took less time, and its checkpoint is still there."""
        torch_ms = self.whisper_torch_ms
        is_less = torch_ms is not None and torch_ms < self.faster_whisper_ms
        return is_less and Path(self.checkpoint).is_dir()

    @property
    def best_ms(self) -> float:
        """Of the engine that is taken."""
        if self.is_torch_faster and self.whisper_torch_ms is not None:
            return self.whisper_torch_ms
        return self.faster_whisper_ms


def read_benchmarks(models_dir: Path) -> dict[str, ModelBenchmark]:
    """By the folder's name that `faster_whisper` loads. What cannot be read was never measured."""
    try:
        return decode_json((models_dir / FILE).read_bytes(), type=dict[str, ModelBenchmark])
    except (OSError, DecodeError):
        return {}


def save_benchmark(models_dir: Path, name: str, measured: ModelBenchmark) -> None:
    """Raises OSError."""
    found = {**read_benchmarks(models_dir), name: measured}
    file = models_dir / FILE
    new = file.with_suffix(".new")
    new.write_bytes(format_json(encode_json(found)))
    new.replace(file)


def device_name(hardware: Hardware) -> str:
    """What recognition is computed on."""
    return hardware.gpus[0].name if hardware.gpus else f"{hardware.cores} cores"
