"""`earshot extras`: the requirements of an extra, the list, and the arguments of pip."""

import argparse
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.errors import ConfigError
from server.__main__ import main
from server.commands import extras
from server.commands.extras import EXTRAS, is_satisfied, requirements_of
from tests.shared import ROOT

REQUIRED = (
    "aiohttp<4,>=3.14",
    'uvloop<1; sys_platform != "win32"',
    'mcp<3,>=2.3; extra == "mcp"',
    'nosuchlib==1; extra == "piper"',
    'nosuchlib==1; sys_platform == "win32" and extra == "mcp"',
    'psycopg[binary]<4,>=3.2; extra == "postgresql"',
    'torch==2.13.0; extra == "torch"',
)
LOCK = "aiohttp==3.14.5 \\\n    --hash=sha256:00\nnosuchlib==1 \\\n    --hash=sha256:00\n"


@pytest.mark.parametrize(
    ("extra", "needed"),
    [
        ("mcp", ["mcp<3,>=2.3"]),
        ("postgresql", ["psycopg[binary]<4,>=3.2"]),
        ("kokoro", []),
    ],
)
def test_the_requirements_of_an_extra_are_those_for_this_machine(
    extra: str, needed: list[str]
) -> None:
    assert requirements_of(extra, REQUIRED) == needed


def test_every_extra_for_users_is_described() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"dev"}


@pytest.mark.parametrize(
    ("line", "is_met"),
    [
        ("pytest>=9", True),
        ("pytest<9", False),
        ("nosuchlib", False),
        ("pytest[dev]>=9", False),  # it is there, what its extra needs is not
    ],
)
def test_a_requirement_is_met_by_version_and_extras(line: str, is_met: bool) -> None:
    assert is_satisfied(line) == is_met


class _Pip:
    """Records its arguments."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    def __call__(self, python: Path, *arguments: str, **_: object) -> None:
        self.asked.append(arguments)


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Pip:
    pip = _Pip()
    monkeypatch.setattr(extras, "pip", pip)
    monkeypatch.setattr(extras, "requires", lambda name: list(REQUIRED))
    monkeypatch.setattr(extras, "is_satisfied", lambda line: line.startswith("mcp"))
    monkeypatch.setattr(extras, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setattr(extras, "STAMP", tmp_path / "stamp")
    return pip


def test_missing_packages_are_installed_and_the_extra_is_remembered(
    pip: _Pip, tmp_path: Path
) -> None:
    (tmp_path / "stamp").write_text("made from\ndev\n")
    assert main(["extras", "add", "mcp", "piper", "piper"]) == 0
    assert [words[-1] for words in pip.asked] == ["nosuchlib==1"]
    assert "--require-hashes" not in pip.asked[0]  # a wheel has no lock
    assert (tmp_path / "stamp").read_text() == "made from\ndev\npiper\n"


def test_a_checkout_installs_the_locked_releases_by_hash(pip: _Pip, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(LOCK)
    assert main(["extras", "add", "piper", "torch"]) == 0
    locked, free = pip.asked
    assert locked[-4:] == ("--require-hashes", "--constraint", str(lock), "nosuchlib==1")
    assert "--require-hashes" not in free  # torch is not in the lock
    assert free[-1] == "torch==2.13.0"


def test_the_list_marks_installed_extras(pip: _Pip, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extras"]) == 0
    listed = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()[:9]}
    assert listed["mcp"] == "installed"
    assert listed["piper"] == "-"


@pytest.mark.parametrize("words", [["--json"], ["list", "--json"], ["--json", "list"]])
def test_the_list_is_printed_as_json(
    pip: _Pip, capsys: pytest.CaptureFixture[str], words: Sequence[str]
) -> None:
    assert main(["extras", *words]) == 0
    listed = {one["name"]: one["installed"] for one in json.loads(capsys.readouterr().out)}
    assert listed.keys() == EXTRAS.keys()
    assert (listed["mcp"], listed["piper"]) == (True, False)


def test_an_unknown_extra_is_refused_with_the_known_ones(
    pip: _Pip, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["extras", "add", "mpc"])
    assert "mcp" in capsys.readouterr().err
    assert pip.asked == []


def test_an_extra_that_the_installed_version_lacks_is_an_error(pip: _Pip) -> None:
    with pytest.raises(ConfigError, match="kokoro: the installed Earshot has no such extra"):
        extras.run(argparse.Namespace(action="add", names=["kokoro"]))
    assert pip.asked == []
