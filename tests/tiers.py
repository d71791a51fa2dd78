"""The tiers of tests: which test belongs to which, and the limits of each tier.

A test without a marker is a unit test: no process, no socket, no browser, no model, and fast. A
test that needs more says so in its file: `pytestmark = pytest.mark.live`. See docs/testing.md.
"""

import re
import socket
import subprocess
from functools import cache
from pathlib import Path

import pytest

_BEYOND_UNIT = ("live", "real", "soak", "browser")
"A test with one of these markers is no unit test; pyproject.toml defines each marker."

_BEYOND_UNIT_FILE = re.compile(
    rf"^pytestmark = .*\bmark\.({'|'.join(_BEYOND_UNIT)})\b", flags=re.MULTILINE
)


@cache
def is_unit_file(file: Path) -> bool:
    """Whether the tests of this file are unit tests as far as its `pytestmark` says.

    The file is read, not imported: `make unit` is quick because it leaves the others out.
    """
    return not _BEYOND_UNIT_FILE.search(file.read_text(encoding="utf-8"))


_ONLY_SLOW_FILE = re.compile(r"^pytestmark = .*\bmark\.(real|soak)\b", flags=re.MULTILINE)

_REAL = "pytest.mark.real"


@cache
def _has_real_fixtures(folder: Path) -> bool:
    """Whether this folder's `conftest.py` makes some tests of its fixtures real."""
    conftest = folder / "conftest.py"
    return conftest.exists() and _REAL in conftest.read_text(encoding="utf-8")


def is_left_out(file: Path, expression: str) -> bool:
    """Whether pytest can leave this file out because `-m expression` chooses none of its tests.

    Importing all test files takes each worker 10 s. Like `is_unit_file`, this reads the file. It
    knows the expressions of the Makefile and of `scripts/test.sh`; with any other, no file is left
    out.
    """
    if expression == "unit":
        return not is_unit_file(file)
    text = file.read_text(encoding="utf-8")
    if expression.endswith(" and alone") and "pytest.mark.alone" not in text:
        return True
    if expression.startswith("(real) and "):
        return _REAL not in text and not any(map(_has_real_fixtures, file.parents))
    return "not real and not soak" in expression and bool(_ONLY_SLOW_FILE.search(text))


def tier(item: pytest.Item) -> str:
    """`many`, `unit`, or "" for a test that its markers place beyond them.

    Hypothesis's tests try many inputs, so they are `many` without a marker.
    """
    if any(map(item.get_closest_marker, _BEYOND_UNIT)):
        return ""
    is_hypothesis = hasattr(getattr(item, "obj", None), "hypothesis")
    return "many" if is_hypothesis or item.get_closest_marker("many") else "unit"


def shut_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes any start of a process or use of a socket fail the test."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a unit test uses no process and no socket; else mark its file `live`")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    for name in ("bind", "connect", "listen"):
        monkeypatch.setattr(socket.socket, name, refuse)
