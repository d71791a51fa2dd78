"""The limits of a whole test run: few second tries (ADR 23), and quick unit tests.

With workers (ADR 51) these plugins live in the process that starts them and gets all reports.
"""

import os
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

UNIT_CPU_S = 10.0
"The limit of processor time for all unit tests; other load on the machine hardly counts."

UNIT_S = 30.0
"The limit of elapsed time on a busy machine; a test that waits shows here."

SECOND_TRIES = 8
"""A test in real time may fail once because of other load on the machine; more than this many in
one run, two in a thousand, are no accident (ADR 23). Unit tests get none, because nothing in them
is random."""

TALLY = "TESTS_TRIED_AGAIN"
"""The environment variable with a file's name: the runs of one `make test` count their second tries
together. Its name does not begin with `EARSHOT_`, because the server refuses such a name that is no
setting."""


def too_slow(cpu_s: float, wall_s: float) -> str:
    """Returns why a run of all unit tests was too slow, or an empty text."""
    if cpu_s > UNIT_CPU_S:
        return f"the unit tests took {cpu_s:.1f} s of processor time; the limit is {UNIT_CPU_S:g} s"
    if wall_s > UNIT_S:
        return f"the unit tests took {wall_s:.1f} s; the limit is {UNIT_S:g} s"
    return ""


def too_flaky(tried_again: Sequence[str]) -> str:
    """Returns why a run in which these tests were tried again is refused, or an empty text."""
    if len(tried_again) <= SECOND_TRIES:
        return ""
    names = ", ".join(tried_again)
    return f"{len(tried_again)} tests needed a second try; the limit is {SECOND_TRIES}: {names}"


class SecondTries:
    """Prints the first failure of each test that is tried again; too many fail the run."""

    def __init__(self, tally: Path | None) -> None:
        """`tally`: a file with the tests of earlier runs, to which this run adds its own."""
        self._tally = tally
        is_later = tally is not None and tally.exists()
        self._names = tally.read_text("utf-8").splitlines() if tally and is_later else []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if str(report.outcome) == "rerun":
            self._names.append(report.nodeid)
            print(f"\ntried again: {report.nodeid}\n{report.longreprtext}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        if self._tally:
            self._tally.write_text("".join(f"{name}\n" for name in self._names), "utf-8")
        if problem := too_flaky(self._names):
            raise session.Failed(problem)
        return result


class UnitTime:
    """Fails a run of the unit tests that took too long."""

    def __init__(self) -> None:
        self._workers_cpu_s = 0.0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Adds a worker's time; pytest-xdist calls it when the worker has ended."""
        self._workers_cpu_s += getattr(node, "workeroutput", {}).get("tests_cpu_s", 0.0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        result = yield
        cpu_s = time.process_time() - began_cpu_s + self._workers_cpu_s
        print(f"\n{session.testscollected} unit tests, {cpu_s:.1f} s of processor time")
        if problem := too_slow(cpu_s, time.monotonic() - began_s):
            raise session.Failed(problem)
        return result


class WorkerTime:
    """Reports the time of this worker's tests to the process that started it."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        began_cpu_s = time.process_time()
        result = yield
        output: dict[str, object] = session.config.workeroutput  # type: ignore[attr-defined]
        output["tests_cpu_s"] = time.process_time() - began_cpu_s
        return result


def limits(config: pytest.Config) -> list[object]:
    """Returns the plugins for this process of this run."""
    if hasattr(config, "workerinput"):
        return [WorkerTime()]
    tally = os.environ.get(TALLY)
    plugins: list[object] = [SecondTries(Path(tally) if tally else None)]
    if config.option.markexpr == "unit" and not config.option.collectonly:
        plugins.append(UnitTime())
    return plugins
