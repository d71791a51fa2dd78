"""The names of a replaced server have the equivalents that the documentation names."""

import re

import pytest

from server.config.load import load
from tests.shared import ROOT

HEADING = "## From the Simple Inference Server\n"

OLD_NAMES = (
    *("MODELS", "MODEL_NAMES", "--models", "MODEL_DEVICE", "--device", "MAX_CONCURRENT"),
    *("MAX_QUEUE_SIZE", "QUEUE_TIMEOUT_SEC", "BATCH_WINDOW_MS", "BATCH_WINDOW_MAX_SIZE"),
    *("CHAT_*", "ALLOW_REMOTE_IMAGES", "MAX_AUDIO_BYTES", "WARMUP_*", "ENABLE_METRICS"),
    *("LOG_LEVEL", "EMBEDDING_CACHE_SIZE"),
)


def _section() -> str:
    text = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    return text.partition(HEADING)[2].partition("\n## ")[0]


@pytest.mark.parametrize("variable", re.findall(r"`(EARSHOT_[A-Z_]+=[^`]+)`", _section()))
def test_a_documented_variable_is_a_setting(variable: str) -> None:
    name, _, value = variable.partition("=")
    origins = load({"HOME": "/nonexistent", name: value}).origins
    assert f"env:{name}" in origins.values()


def test_every_old_name_has_a_row() -> None:
    first_column = "".join(line.split("|")[1] for line in _section().splitlines() if "|" in line)
    assert [name for name in OLD_NAMES if f"`{name}`" not in first_column] == []
