"""Missing files and unknown voices are named."""

import json
from pathlib import Path

import pytest

from core.errors import ConfigError, EngineMissing
from engines.registry import worker_profile
from engines.tts.indri.settings import choose_voices, read_vocabulary

SPEAKERS = ("spkr_1", "spkr_53", "spkr_63")


def test_a_folder_needs_three_files(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        with pytest.raises(EngineMissing, match=f"no {name} in {tmp_path}"):
            read_vocabulary(tmp_path)
        (tmp_path / name).write_text(json.dumps({"vocab_size": 70_016}), encoding="utf-8")
    assert read_vocabulary(tmp_path) == 70_016


@pytest.mark.parametrize(
    ("config", "problem"), [("{", "is not JSON"), ("[]", "has no number `vocab_size`")]
)
def test_a_broken_configuration_is_named(tmp_path: Path, config: str, problem: str) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text(config, encoding="utf-8")
    with pytest.raises(EngineMissing, match=f"config.json {problem}"):
        read_vocabulary(tmp_path)


def test_the_published_voices_come_first() -> None:
    assert choose_voices(SPEAKERS, ()) == ("spkr_63", "spkr_53")
    assert choose_voices(("spkr_1", "spkr_2"), ()) == ("spkr_1", "spkr_2")
    assert choose_voices(SPEAKERS, ("spkr_1",)) == ("spkr_1",)
    with pytest.raises(ConfigError, match=r"no speaker 'spkr_9'; there are: spkr_1, spkr_53"):
        choose_voices(SPEAKERS, ("spkr_9",))


def test_it_runs_in_a_worker_and_needs_both_folders() -> None:
    profile = worker_profile("tts", "indri", {"path": "a", "codec": "b"})
    assert profile is not None
    assert profile.environment["HF_HUB_OFFLINE"] == "1"
    with pytest.raises(ConfigError, match="codec"):
        worker_profile("tts", "indri", {"path": "a"})
