"""Which tests are unit tests, and what a unit test may not do."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.run_limits import SECOND_TRIES, UNIT_CPU_S, UNIT_S, too_flaky, too_slow
from tests.shared import ROOT
from tests.tiers import is_left_out, is_unit_file, shut_in
from tests.workers import group_of, put_long_files_first

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("source", "is_unit"),
    [
        ("import pytest\n", True),
        ("pytestmark = pytest.mark.many\n", True),
        ("@pytest.mark.real\ndef test_it() -> None: ...\n", True),
        ('"""Docs."""\npytestmark = pytest.mark.live\n', False),
        ("pytestmark = [pytest.mark.browser, pytest.mark.many]\n", False),
        ("pytestmark = pytest.mark.soak\n", False),
    ],
    ids=["no marker", "many", "one real test", "live", "browser and many", "soak"],
)
def test_a_file_is_a_unit_test_unless_its_marker_says_more(
    source: str, is_unit: bool, tmp_path: Path
) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(source, encoding="utf-8")
    assert is_unit_file(file) is is_unit


MEASURES = "@pytest.mark.alone\ndef test_it() -> None: ...\n"
RUN_TIMEOUT_S = 150
"A limit for a run of pytest that takes a few seconds on a quiet machine; a hang costs all of it."

QUICK = "def test_it() -> None: ...\n"
REAL = "pytestmark = pytest.mark.real\n"


@pytest.mark.parametrize(
    ("expression", "source", "is_out"),
    [
        ("unit", QUICK, False),
        ("unit", REAL, True),
        ("(not real and not soak) and alone", QUICK, True),
        ("(not real and not soak) and alone", MEASURES, False),
        ("(not real and not soak) and alone", REAL + MEASURES, True),
        ("(not real and not soak) and not alone", REAL, True),
        ("(not real and not soak) and not alone", MEASURES, False),
        ("(real) and alone", REAL + MEASURES, False),
        ("(real) and not alone", REAL, False),
        ("(real) and not alone", QUICK, True),
        ("real or soak", REAL, False),
        ("", REAL, False),
    ],
)
def test_a_file_without_a_chosen_test_is_not_imported(
    expression: str, source: str, is_out: bool, tmp_path: Path
) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(source, encoding="utf-8")
    assert is_left_out(file, expression) is is_out


def test_a_file_whose_fixture_has_a_real_parameter_is_imported(tmp_path: Path) -> None:
    fixture = '@pytest.fixture(params=[pytest.param("", marks=pytest.mark.real)])\n'
    (tmp_path / "conftest.py").write_text(fixture, encoding="utf-8")
    file = tmp_path / "folder" / "test_it.py"
    file.parent.mkdir()
    file.write_text(QUICK, encoding="utf-8")
    assert not is_left_out(file, "(real) and not alone")


def test_every_marker_of_a_file_stands_on_one_line() -> None:
    """`is_unit_file`, `is_left_out` and `group_of` find no other."""
    files = (ROOT / "tests").rglob("test_*.py")
    texts = {one: one.read_text(encoding="utf-8") for one in files if one != Path(__file__)}
    assert [one for one, text in texts.items() if "pytestmark = [\n" in text] == []
    grouped = {one for one, text in texts.items() if "xdist_group(" in text}
    assert {one for one in texts if group_of(one)} == grouped
    assert len(grouped) > 1


def run_workers(folder: Path, workers: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the tests in the folder with our scheduler."""
    (folder / "conftest.py").write_text(
        "from tests.workers import FileScheduling\n"
        "def pytest_xdist_make_scheduler(config, log): return FileScheduling(config, log)\n",
        encoding="utf-8",
    )
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = xdist_group\n", encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", f"-n{workers}", "--dist", "loadscope", *options, folder],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_TIMEOUT_S,
    )


def test_the_files_of_a_group_go_to_one_worker(tmp_path: Path) -> None:
    """Otherwise they would disturb each other; pytest-xdist by itself says nothing."""
    marked = 'import pytest\npytestmark = pytest.mark.xdist_group("one")\n'
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text(marked + QUICK, encoding="utf-8")
    done = run_workers(tmp_path, 2, "-vv")
    workers = re.findall(r"\[(gw\d)\].* PASSED", done.stdout)
    assert len(workers) == 3, done.stdout + done.stderr
    assert len(set(workers)) == 1


class _Listed:
    """A collected test as far as the order needs it."""

    def __init__(self, file: str, *markers: str) -> None:
        self.nodeid = f"{file}::test_it"
        self._markers = markers

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return getattr(pytest.mark, name).mark if name in self._markers else None


def test_late_files_begin_after_a_third_of_the_usual_ones() -> None:
    usual = [_Listed(name, "real") for name in ("b", "c", "d")]
    tests = [_Listed("unit"), _Listed("late", "real", "late"), *usual]
    tests += [_Listed("many", "many"), _Listed("long", "real", "long"), _Listed("b", "real")]
    put_long_files_first(cast("list[pytest.Item]", tests))
    order = [one.nodeid.partition("::")[0] for one in tests]
    assert order == ["long", "b", "b", "late", "c", "d", "many", "unit"]


@pytest.mark.parametrize(("workers", "files_after"), [(1, 3), (2, 0), (2, 3)])
def test_a_crashed_worker_costs_one_test(tmp_path: Path, workers: int, files_after: int) -> None:
    """Otherwise the run would wait for ever, or crash one worker after the other."""
    crash = "import os\ndef test_crash(): os._exit(3)\n"
    later = "".join(f"def test_{name}(): pass\n" for name in ("b", "c"))
    (tmp_path / "test_0.py").write_text(QUICK, encoding="utf-8")
    (tmp_path / "test_1.py").write_text(QUICK + crash + later, encoding="utf-8")
    for index in range(files_after):
        (tmp_path / f"test_2{index}.py").write_text(QUICK, encoding="utf-8")
    done = run_workers(tmp_path, workers)
    assert done.stdout.count("replacing crashed worker") == 1, done.stdout + done.stderr
    assert f"1 failed, {4 + files_after} passed" in done.stdout
    assert "crashed while running 'test_1.py::test_crash'" in done.stdout


def test_a_unit_test_that_opens_a_socket_or_starts_a_process_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shut_in(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match="mark its file `live`"):
        subprocess.run([sys.executable, "--version"], check=False)
    with socket.socket() as one, pytest.raises(pytest.fail.Exception):
        one.bind(("127.0.0.1", 0))


def test_slow_unit_tests_are_reported() -> None:
    assert too_slow(UNIT_CPU_S, UNIT_S) == ""
    assert "processor time; the limit is 10 s" in too_slow(UNIT_CPU_S + 1, UNIT_S)
    assert "31.0 s; the limit is 30 s" in too_slow(UNIT_CPU_S, UNIT_S + 1)


def test_a_run_of_many_second_tries_fails() -> None:
    assert too_flaky(["one"] * SECOND_TRIES) == ""
    assert "tests needed a second try; the limit is 8: one, one" in too_flaky(
        ["one"] * (SECOND_TRIES + 1)
    )


def test_only_tests_in_real_time_get_a_second_try(request: pytest.FixtureRequest) -> None:
    """The tests of this file run in real time; those of `tests/core` do not."""
    assert request.node.get_closest_marker("flaky").kwargs == {"reruns": 1}
    unit = [one for one in request.session.items if one.get_closest_marker("unit")]
    assert [one.nodeid for one in unit if one.get_closest_marker("flaky")] == []
