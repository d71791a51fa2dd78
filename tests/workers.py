"""Which worker of pytest-xdist runs which test (ADR 51)."""

from xdist.scheduler import LoadGroupScheduling


class FileScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Gives all tests of a file to one worker, so that its fixtures are made once.

    Files with the same `pytest.mark.xdist_group` go to one worker together: they share a folder,
    a port or an installation.
    """

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if scope == nodeid else scope
