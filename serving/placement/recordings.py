"""Word errors and times of recognisers on the user's own recordings, from `earshot models bench
--recordings`."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import DecodeError, Struct
from msgspec.json import decode as decode_json

from serving.placement.benchmarks import replace_json

FILE = ".measured_recordings.json"
"File in the models folder. It is hidden, and useless on another machine."

TOLERATED_PERCENT = 0.5
"""Word errors, in percentage points, that a faster model may make more. In 200 spoken words this is
one word."""


class RecordingsBenchmark(Struct, frozen=True):
    """Word errors and times of one model on one set of recordings."""

    size_mb: float
    "Size of the model's weights on disk. Weights of another size were not measured."
    recordings: str
    "Checksum of the recordings and their texts."
    language: str
    "Language of the recordings."
    device: str
    "Machine that measured, by `device_name`."
    words: int
    "Number of words that were said."
    word_errors_percent: float
    p50_ms: float
    "Median of the time that an utterance took."
    p95_ms: float
    memory_mb: float
    "Memory of the worker process."

    def is_better_than(self, other: "RecordingsBenchmark") -> bool:
        """True if this model is faster than the other one and makes hardly more word errors. False
        also if both were not measured with the same recordings on the same machine."""
        mine, its = ((one.recordings, one.language, one.device) for one in (self, other))
        return (
            mine == its
            and self.p50_ms < other.p50_ms
            and self.word_errors_percent <= other.word_errors_percent + TOLERATED_PERCENT
        )

    def summary(self) -> str:
        """Returns errors and time, for people."""
        return f"{self.word_errors_percent:.1f} % word errors in {self.p50_ms:.0f} ms"


def read_recordings_benchmarks(models_dir: Path) -> dict[str, RecordingsBenchmark]:
    """Returns the benchmarks by the name of the model's folder. An unreadable file counts as
    empty."""
    try:
        return decode_json((models_dir / FILE).read_bytes(), type=dict[str, RecordingsBenchmark])
    except (OSError, DecodeError):
        return {}


def save_recordings_benchmark(models_dir: Path, name: str, benchmark: RecordingsBenchmark) -> None:
    """Adds the benchmark of one model to the file, or replaces it. Raises OSError."""
    replace_json(models_dir / FILE, {**read_recordings_benchmarks(models_dir), name: benchmark})


def benchmark_of(
    benchmarks: Mapping[str, RecordingsBenchmark], folder: Path, size_mb: float
) -> RecordingsBenchmark | None:
    """Returns the benchmark of the weights in a folder; None if these weights were not measured."""
    benchmark = benchmarks.get(folder.name)
    return benchmark if benchmark is not None and benchmark.size_mb == size_mb else None
