"""Skips, the unit tests' limits, and the order of tests.

A test may skip on a laptop, but not in CI, where a missing part must be noticed.
"""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.processor_time import ProcessorTimes
from tests.run_limits import limits
from tests.shared import NEEDS_SHARED
from tests.tiers import is_left_out, shut_in, tier

gc.disable()  # until `pytest_collection_finish`: the import of test files makes no garbage

NEEDS_GPU = "needs a GPU"
NEEDS_RAY = "Ray is not installed"  # a test in test-real runs these where it is
"How a skip reason starts when there is no GPU; CI machines have none."

_ALLOWED_IN_CI = (NEEDS_SHARED, NEEDS_GPU, NEEDS_RAY)

REAL_TEST_S = 1800
"""The limit of a test with real parts: some compute for many minutes. That of other tests stands in
pyproject.toml. Soak tests have none, because an option sets how long they run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--processor-time",
        type=int,
        metavar="N",
        help="list the N files and the N tests that take the most processor time",
    )


def pytest_configure(config: pytest.Config) -> None:
    for plugin in limits(config):
        config.pluginmanager.register(plugin)
    if shown := config.option.processor_time:
        config.pluginmanager.register(ProcessorTimes(shown))
    # A shell makes background programs ignore Ctrl-C; the tests of Ctrl-C need it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# The time of an input depends on what the other workers do, so it has no deadline.
settings.register_profile(
    "earshot", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("earshot")


def _strict() -> bool:
    return os.environ.get("EARSHOT_CI_STRICT") == "1"


def require(condition: object, reason: str) -> None:
    """Skips the test unless the condition holds; fails it in CI. `reason`: what is missing."""
    if condition:
        return
    if _strict():
        pytest.fail(f"missing in CI: {reason}", pytrace=False)
    pytest.skip(reason)


def _refused(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Returns why this skip is refused in CI; None if it is accepted or is no skip."""
    if not report.skipped or hasattr(report, "wasxfail") or not _strict():
        return None
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    return None if reason.startswith(_ALLOWED_IN_CI) else f"skipped in CI: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if refused := _refused(report):
        report.outcome, report.longrepr = "failed", refused
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if refused := _refused(report):
        report.outcome, report.longrepr = "failed", refused
    return report


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names a parameter of bytes that are no text by its length.

    With its contents nobody could read the name. A compressed file holds the time, too, so workers
    of pytest-xdist that import its test in different seconds would disagree about the tests.
    """
    if isinstance(val, bytes) and not val.isascii():
        return f"{argname} of {len(val)} bytes"
    return None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not collection_path.match("test_*.py"):
        return None
    return is_left_out(collection_path, config.option.markexpr) or None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from tests.workers import FileScheduling  # some environments of tests have no pytest-xdist

    return FileScheduling(config, log)


@pytest.hookimpl(tryfirst=True)  # before -m selects tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        from tests.workers import put_long_files_first

        put_long_files_first(items)
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(0))
        elif item.get_closest_marker("real"):
            item.add_marker(pytest.mark.timeout(REAL_TEST_S))
        if name := tier(item):
            item.add_marker(name)
        elif not item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.flaky(reruns=1))  # ADR 23


def pytest_collection_finish() -> None:
    """Lets the garbage collector look at what tests make, and never at the million objects of all
    modules and tests."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _unit_tests_are_shut_in(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any(map(request.node.get_closest_marker, ("unit", "many"))):
        shut_in(monkeypatch)
