"""whisper-nano: a Whisper of random weights that loads at once."""

from pathlib import Path
from typing import Any

from engines.base import AsrModel
from engines.registry import load

NANO = Path(__file__).parents[1] / "fixtures" / "whisper-nano"


def load_nano(**options: Any) -> AsrModel:
    return load("asr", "faster_whisper", {"model": str(NANO), "cpu_threads": 1, **options})
