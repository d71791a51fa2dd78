"""An exception of our callbacks ends their owner; in aiortc's tasks it would only be logged."""

from collections.abc import Callable
from types import TracebackType


class CallbackGuard:
    """Gives an exception of the body to `fail`, and goes on behind it."""

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool:
        if not isinstance(exc, Exception):
            return False
        self._fail(exc)
        return True
