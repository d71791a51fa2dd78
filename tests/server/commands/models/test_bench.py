"""`earshot models bench` with engines whose times a test sets."""

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.audio import Pcm
from engines.base import AsrItem
from server.commands.models import bench, command
from server.commands.models.arguments import add_actions
from server.config import Config
from serving.placement.benchmarks import read_benchmarks
from tests.engines.nano import NANO
from tests.terminal import Terminal

MS = {"faster_whisper": 20.0, "whisper_torch": 10.0}
"Milliseconds that each engine takes for an utterance."


@dataclass
class Clock:
    """The module `time` as the measurement sees it."""

    at_s: float = 0.0

    def monotonic(self) -> float:
        return self.at_s


@dataclass
class Engine:
    """A recogniser that takes the same time for each utterance."""

    name: str
    clock: Clock

    def decode(self, items: Sequence[AsrItem]) -> list[Any]:
        self.clock.at_s += MS[self.name] / 1000
        return []

    def close(self) -> None:
        pass


async def silence(_: str) -> Pcm:
    return np.zeros(1600, np.int16)


def models(*arguments: str) -> int:
    """Runs `earshot models` in this process; returns its exit code."""
    parser = argparse.ArgumentParser()
    add_actions(parser)
    return command.run(parser.parse_args(arguments), Config)


def test_the_result_is_printed_as_json_and_the_progress_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, terminal = Clock(), Terminal()
    monkeypatch.setattr(bench, "time", clock)
    monkeypatch.setattr(bench, "load", lambda kind, name, options: Engine(name, clock))
    monkeypatch.setattr(bench, "synthesize", silence)
    monkeypatch.setattr("sys.stderr", terminal)
    shutil.copytree(NANO, tmp_path / "command")
    (tmp_path / "checkpoint").mkdir()
    folder = str(tmp_path / "checkpoint")
    where = ("--models-dir", str(tmp_path), "command", folder)
    assert models("bench", "--json", *where) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("device") == read_benchmarks(tmp_path)["command"].device
    assert found == {
        "model": "command",
        "path": str(tmp_path / "command"),
        "checkpoint": folder,
        "faster_whisper_ms": pytest.approx(20),
        "whisper_torch_ms": pytest.approx(10),
        "faster": "whisper_torch",
    }
    assert terminal.drawn()[-1].endswith("100% of 36 utterances")
    assert models("bench", *where) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "auto takes whisper_torch for command"
