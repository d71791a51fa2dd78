"""The processor time of each test file: `--processor-time 20` lists the 20 that take the most.

Elapsed time depends on what else the machine does, so it says little about what a test costs.
"""

import resource
from collections import defaultdict
from collections.abc import Generator

import pytest

_PROPERTY = "processor_time_s"


def _used_s() -> float:
    """This process, and its children that have ended and been waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class ProcessorTimes:
    """Measures every test, and prints the sums at the end.

    The reports carry the figures from the workers of pytest-xdist to the process that prints. A
    child counts for the test that waits for its end. Processes that tests/server/forked.py starts
    are children of another process and do not count.
    """

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._files: dict[str, float] = defaultdict(float)
        self._tests: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from _measured(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from _measured(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from _measured(item))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        used_s = sum(
            float(str(value)) for name, value in report.user_properties if name == _PROPERTY
        )
        self._files[report.nodeid.partition("::")[0]] += used_s
        self._tests[report.nodeid] += used_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"{sum(self._files.values()):.0f} s of processor time")
        for times in (self._files, self._tests):
            for name in sorted(times, key=times.__getitem__, reverse=True)[: self._shown]:
                terminalreporter.write_line(f"{times[name]:8.1f} s  {name}")


def _measured(item: pytest.Item) -> Generator[None, object, object]:
    began_s = _used_s()
    try:
        return (yield)
    finally:
        # The report of each phase repeats the list, so it holds this phase's figure only.
        item.user_properties[:] = [(_PROPERTY, _used_s() - began_s)]
