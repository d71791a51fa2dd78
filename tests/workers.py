"""The assignment of tests to workers of pytest-xdist, and their order (ADR 51)."""

from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling

from tests.tiers import tier

_REAL_TIME_GROUP = "talkers"
"""These tests speak in real time and hardly use the processor. They take the longest of all groups,
so a worker begins with them."""


class FileScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Gives all tests of a file to one worker, so that its fixtures are made once.

    Files with the same `pytest.mark.xdist_group` go to one worker together: they share a folder,
    a port or an installation.
    """

    def __init__(self, config: Any, log: Any) -> None:
        # By itself xdist begins with the file that has the most tests, and ends with a few long
        # tests for which all other workers wait.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if scope == nodeid else scope


def put_long_files_first(items: list[pytest.Item]) -> None:
    """Sorts files by the time that one of their tests may take: real time, processes, many inputs,
    unit.

    The last ones are short, so all workers end at about the same time.
    """
    ranks: dict[str, int] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        ranks[file] = min(_rank(item), ranks.get(file, _rank(item)))
    items.sort(key=lambda item: ranks[item.nodeid.partition("::")[0]])


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("long"):
        return 0
    group = item.get_closest_marker("xdist_group")
    if group and group.args == (_REAL_TIME_GROUP,):
        return 0
    return {"": 1, "many": 2, "unit": 3}[tier(item)]
