"""Fuzz tests: any input from outside is used or refused, in bounded time and memory. `make test`
tries some thousand inputs of each kind, `make test-real` ten thousand, the soak a million.
`engine.py` runs them."""

import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import run

import pytest

from tests.conftest import require
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.shared import ROOT

pytestmark = pytest.mark.live

SEED = os.environ.get("EARSHOT_FUZZ_SEED", "7")
"Another seed gives other inputs; the same seed gives the same inputs."

MAX_LOG_CHARS = 4000
"The part of the log's end that a failure shows; the traceback comes last."

QUICK_SHARE = 20
"""`make test` divides the `few` inputs of each target by this: all of them take a minute more of
processor time, and `make test-real` tries them."""


@dataclass(frozen=True, slots=True)
class Fuzzer:
    folder: Path

    def run(self, arguments: Iterable[str], *flags: str, of: str = "tests.fuzz.targets") -> None:
        """Fuzzes the named targets, or all without names. Writes for each what `check` reads.

        `arguments` are options and names for the engine, `flags` are for libFuzzer.
        """
        require(find_spec("atheris"), "Atheris has no wheel for this Python or platform")
        own = [f"--folder={self.folder}", f"--of={of}", "--jobs=2", *arguments]
        done = run(
            [sys.executable, "-m", "tests.fuzz.engine", *own, "--", f"-seed={SEED}", *flags],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-MAX_LOG_CHARS:]

    def check(self, name: str) -> None:
        folder = self.folder / name
        report = json.loads((folder / "report.json").read_text("utf-8"))
        if report["exit"] != 0:
            found = folder / "input"
            data = repr(found.read_bytes()) if found.exists() else "lost"
            log = (folder / "log").read_text("utf-8", "replace")[-MAX_LOG_CHARS:]
            pytest.fail(f"{name}: {report}\n{log}\nThe input: {data}", pytrace=False)


@pytest.fixture(scope="module")
def few(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return _run_chosen(request, tmp_path_factory, "few")


@pytest.fixture(scope="module")
def fewest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return _run_chosen(request, tmp_path_factory, "fewest", f"--share={QUICK_SHARE}")


def _run_chosen(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    fixture: str,
    *options: str,
) -> Fuzzer:
    """Runs all targets of this test run in one process: its imports take seconds to instrument."""
    items = (one for one in request.session.items if isinstance(one, pytest.Function))
    chosen = [one.callspec.params["target"] for one in items if fixture in one.fixturenames]
    fuzzer = Fuzzer(tmp_path_factory.mktemp("fuzz"))
    fuzzer.run([*options, *(one.name for one in chosen if isinstance(one, Target))])
    return fuzzer


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    fuzzer = Fuzzer(tmp_path_factory.mktemp("broken"))
    fuzzer.run((), "-runs=100000", "-timeout=5", of="tests.fuzz.planted_defects")
    return fuzzer


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.name)
def test_no_defect_is_found_with_some_inputs(target: Target, fewest: Fuzzer) -> None:
    fewest.check(target.name)


@pytest.mark.real
@pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.name)
def test_no_defect_is_found_with_ten_thousand_inputs(target: Target, few: Fuzzer) -> None:
    few.check(target.name)


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.name)
def test_no_defect_is_found_with_a_million_inputs(target: Target, tmp_path: Path) -> None:
    fuzzer = Fuzzer(tmp_path)
    fuzzer.run([target.name], f"-runs={target.many}")
    fuzzer.check(target.name)


@pytest.mark.parametrize(
    ("target", "why"), [("fails", "AssertionError"), ("hangs", "timeout"), ("leaks", "memory")]
)
def test_planted_defects_are_found(target: str, why: str, broken: Fuzzer) -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        broken.check(target)
    assert why in str(failed.value)
    assert re.search(f"The input: b['\"]{target[:4]}", str(failed.value))  # repr chooses the quotes
