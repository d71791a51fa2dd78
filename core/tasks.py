"""TaskGroups whose one error is raised as itself."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def single_error() -> Iterator[None]:
    """Around a TaskGroup: callers catch the one error that ended it, not a group of one. Several
    stay a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
