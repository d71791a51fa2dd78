"""One event loop for all inputs, because creating a loop takes longer than most inputs."""

from collections.abc import Coroutine
from functools import cache
from typing import Any

from tests.loop import VirtualClockLoop


class _Loop(VirtualClockLoop):
    """A loop that records exceptions that no task raises."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.broken.append(context))


@cache
def _loop() -> _Loop:
    return _Loop()


def run_kept(coroutine: Coroutine[Any, Any, object]) -> float:
    """Runs to the end; returns the virtual seconds that it took."""
    loop = _loop()
    began = loop.now
    loop.run_until_complete(coroutine)
    assert not loop.broken, loop.broken
    return loop.now - began
