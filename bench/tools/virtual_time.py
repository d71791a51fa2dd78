"""Event loop whose clock jumps to the next timer whenever nothing is runnable."""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _VirtualTimeSelector(selectors.SelectSelector):
    loop: "VirtualClockLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Advances the clock; there are no real events."""
        if timeout is None:
            raise RuntimeError("deadlock: nothing is runnable and no timer is set")
        self.loop.now += max(0.0, timeout)
        return []


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """Event loop without real sockets or threads: sleeps take no real time."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _VirtualTimeSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Runs the function at once: work in a thread takes no virtual time."""
        done: asyncio.Future[T] = self.create_future()
        done.set_result(func(*args))
        return done


def run_virtual(coroutine: Any) -> float:
    """Runs to the end; returns the virtual seconds it took."""
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(coroutine)
        return runner.get_loop().time()
