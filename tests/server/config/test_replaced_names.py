"""The names of a replaced server have the equivalents that the documentation names."""

import re
from pathlib import Path

import pytest

from core.errors import ConfigError
from server.config.load import REPLACED_NAMES, add_dotenv, load
from tests.shared import ROOT

HEADING = "## From the Simple Inference Server\n"

OLD_NAMES = (
    *("MODELS", "MODEL_NAMES", "--models", "MODEL_DEVICE", "--device", "MAX_CONCURRENT"),
    *("MAX_QUEUE_SIZE", "QUEUE_TIMEOUT_SEC", "BATCH_WINDOW_MS", "BATCH_WINDOW_MAX_SIZE"),
    *("CHAT_*", "ALLOW_REMOTE_IMAGES", "MAX_AUDIO_BYTES", "WARMUP_*", "ENABLE_METRICS"),
    *("LOG_LEVEL", "EMBEDDING_CACHE_SIZE", ".env", "MODEL_CONFIG", "AUTO_DOWNLOAD_MODELS"),
    *("HF_HOME", "HF_TOKEN", "MAX_BATCH_SIZE", "MAX_TEXT_CHARS", "ENABLE_WARMUP"),
)


def _section() -> str:
    text = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    return text.partition(HEADING)[2].partition("\n## ")[0]


@pytest.mark.parametrize("variable", re.findall(r"`(EARSHOT_[A-Z_]+=[^`]+)`", _section()))
def test_a_documented_variable_is_a_setting(variable: str) -> None:
    name, _, value = variable.partition("=")
    origins = load({"HOME": "/nonexistent", name: value}).origins
    assert f"env:{name}" in origins.values()


def _rows() -> list[list[str]]:
    return [line.split("|") for line in _section().splitlines() if line.startswith("| `")]


def _names(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


@pytest.mark.parametrize(
    ("variable", "value", "path", "setting"),
    [
        ("MODELS", "small, BAAI/bge", ("models", "preload"), ("small", "BAAI/bge")),
        ("MODEL_NAMES", "small, BAAI/bge", ("models", "preload"), ("small", "BAAI/bge")),
        ("MAX_AUDIO_BYTES", "26214400", ("server", "max_upload_bytes"), 26_214_400),
    ],
)
def test_a_name_that_is_read_sets_its_setting(
    variable: str, value: str, path: tuple[str, str], setting: object
) -> None:
    loaded = load({"HOME": "/nonexistent", variable: value})
    assert loaded.origins == {path: f"env:{variable}"}
    section, name = path
    assert getattr(getattr(loaded.config, section), name) == setting


def test_our_names_and_options_go_before_the_old_ones() -> None:
    old = {"MODEL_NAMES": "one", "MODELS": "two"}
    assert load(old).config.models.preload == ("two",)
    both = {**old, "EARSHOT_MODELS__PRELOAD": "three"}
    assert load(both).config.models.preload == ("three",)
    assert load(both, flags={"--models": "four,five"}).config.models.preload == ("four", "five")


def test_a_wrong_value_is_reported_under_the_old_name() -> None:
    with pytest.raises(ConfigError, match=r"^MAX_AUDIO_BYTES: expected .*, got '25 MB'"):
        load({"MAX_AUDIO_BYTES": "25 MB"})


def test_the_table_says_which_names_are_read() -> None:
    read = {name for row in _rows() if row[2].strip() == "yes" for name in _names(row[1])}
    assert {*REPLACED_NAMES, "--models", ".env", "HF_TOKEN"} <= read
    others = {name for row in _rows() if row[2].strip() == "no" for name in _names(row[1])}
    assert len(others) > 20
    assert load(dict.fromkeys(others, "1")).origins == {}


def test_dotenv_gives_what_the_environment_lacks(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(
        "# of the old server\nexport MODELS='small,tiny'\nEARSHOT_PORT=1\nHF_TOKEN=secret\n"
        "PATH=/elsewhere\nEARSHOT_LOG__LEVEL=debug # more\n",
        encoding="utf-8",
    )
    environ = {"EARSHOT_PORT": "2"}
    add_dotenv(file, environ)
    assert environ == {
        "EARSHOT_PORT": "2",
        "MODELS": "small,tiny",
        "HF_TOKEN": "secret",
        "EARSHOT_LOG__LEVEL": "debug",
    }


def test_a_wrong_line_of_dotenv_is_named(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    add_dotenv(file, {})  # a missing file is none
    file.write_text("MODELS=small\nMODELS='tiny\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"\.env: line 2: expected NAME=VALUE"):
        add_dotenv(file, {})


def test_every_old_name_has_a_row() -> None:
    first_column = "".join(line.split("|")[1] for line in _section().splitlines() if "|" in line)
    assert [name for name in OLD_NAMES if f"`{name}`" not in first_column] == []
