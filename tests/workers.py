"""The assignment of tests to workers of pytest-xdist, and their order (ADR 51)."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

from tests.tiers import tier

_REAL_TIME_GROUP = "talkers"
"""These tests speak in real time and hardly use the processor. They take the longest of all groups,
so a worker begins with them."""

_USUAL, _LATE = 1, 2
"""Ranks of files: those with processes, sockets or models, and those that need an installation of
a file marked `long`."""

_GROUP = re.compile(r'^pytestmark = .*\bmark\.xdist_group\("(\w+)"\)', flags=re.MULTILINE)


@cache
def group_of(file: Path) -> str:
    """Returns the name that the file's `pytest.mark.xdist_group` gives, or an empty text.

    The file is read. pytest-xdist 3.8 sends the groups as parts of the tests' names, which pytest
    9.2 ignores without a word (pytest-xdist issue 1386).
    """
    marker = _GROUP.search(file.read_text(encoding="utf-8"))
    return marker[1] if marker else ""


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives all tests of a file to one worker, so that its fixtures are made once.

    Files with the same `pytest.mark.xdist_group` go to one worker together: they share a folder,
    a port or an installation.
    """

    def __init__(self, config: Any, log: Any) -> None:
        # By itself xdist begins with the file that has the most tests, and ends with a few long
        # tests for which all other workers wait.
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._root: Path = config.rootpath

    def schedule(self) -> None:
        """Gives files to the workers that wait for some.

        A worker runs a test only when it has the next one. By itself pytest-xdist 3.8 gives the
        replacement of a crashed worker one file, so with a file of one test it waits for ever.
        """
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """Forgets a worker, and gives the tests that it still had to the others. Returns the test
        that crashed it, which counts as failed.

        By itself pytest-xdist 3.8 runs that test again, so that it crashes one worker after the
        other. And it gives away the files of which every test was run, too: a worker with such a
        file waits for ever, because only the end of a test gets it the next file.
        """
        units = self.assigned_work[node]
        crashed = next((test for tests in units.values() for test in _unfinished(tests)), None)
        for scope, tests in list(units.items()):
            if crashed in tests:
                tests[crashed] = True
            if not _unfinished(tests):
                del units[scope]
        super().remove_node(node)
        return crashed

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return group_of(self._root / file) or file


def _unfinished(tests: Mapping[str, bool]) -> list[str]:
    """Returns the names of the tests that were not run. `tests`: name of a test -> was it run."""
    return [name for name, was_run in tests.items() if not was_run]


def put_long_files_first(items: list[pytest.Item]) -> None:
    """Sorts files by the time that one of their tests may take: real time, processes, many inputs,
    unit.

    The last ones are short, so all workers end at about the same time. Files marked `late` begin
    after a third of those with processes: what they need is installed then, and the others still
    share the cores with them.
    """
    ranks: dict[str, int] = {}
    for item in items:
        ranks[_file(item)] = min(_rank(item), ranks.get(_file(item), _rank(item)))
    usual = [file for file, rank in ranks.items() if rank == _USUAL]
    early = set(usual[: len(usual) // 3])
    items.sort(key=lambda item: (ranks[_file(item)], _file(item) not in early))
    late = [item for item in items if ranks[_file(item)] == _LATE]
    rest = [item for item in items if ranks[_file(item)] != _LATE]
    start = sum(ranks[_file(item)] < _USUAL or _file(item) in early for item in rest)
    items[:] = [*rest[:start], *late, *rest[start:]]


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("long"):
        return 0
    group = item.get_closest_marker("xdist_group")
    if group and group.args == (_REAL_TIME_GROUP,):
        return 0
    if item.get_closest_marker("late"):
        return _LATE
    return {"": _USUAL, "many": 3, "unit": 4}[tier(item)]
