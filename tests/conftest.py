"""Skips: fine on a laptop, not in CI, where a part that went missing must be noticed."""

import os
from collections.abc import Generator

import pytest

from tests.shared import NEEDS_SHARED

NEEDS_GPU = "needs a GPU"
"How a skip reason starts when there is no GPU; CI machines have none."

_ALLOWED_IN_CI = (NEEDS_SHARED, NEEDS_GPU)


def _strict() -> bool:
    return os.environ.get("EARSHOT_CI_STRICT") == "1"


def require(condition: object, reason: str) -> None:
    """Go on if the condition holds; otherwise skip, or fail in CI. `reason`: what is missing."""
    if condition:
        return
    if _strict():
        pytest.fail(f"missing in CI: {reason}", pytrace=False)
    pytest.skip(reason)


def _refused(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Why this skip is not accepted in CI; None when it is accepted or is no skip."""
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
