"""Event loops whose clock jumps to the next timer whenever nothing is runnable."""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_LOOPBACK_S = 0.0003
"""How long the kernel may take to hand over what was sent on a socket of this process. It mostly
does so before the call of `send` returns."""


class _VirtualTimeSelector(selectors.SelectSelector):
    loop: "VirtualClockLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Advances the clock; there are no real events."""
        if timeout is None:
            raise RuntimeError("deadlock: nothing is runnable and no timer is set")
        self.loop.now += max(0.0, timeout)
        return []


class _LoopbackSelector(_VirtualTimeSelector):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Returns the events of sockets; advances the clock only if there are none."""
        if ready := selectors.SelectSelector.select(self, 0):
            return ready
        if timeout == 0:
            return []
        if ready := selectors.SelectSelector.select(self, _LOOPBACK_S):
            return ready
        return super().select(timeout)


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """Event loop without real sockets or threads: sleeps take no real time."""

    selector: type[_VirtualTimeSelector] = _VirtualTimeSelector

    def __init__(self) -> None:
        self.now = 0.0
        selector = self.selector()
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


class LoopbackClockLoop(VirtualClockLoop):
    """The same for a server and its clients in one process, which talk through real sockets."""

    selector = _LoopbackSelector


def run_virtual(
    coroutine: Any, loop_factory: Callable[[], VirtualClockLoop] = VirtualClockLoop
) -> float:
    """Runs to the end; returns the virtual seconds it took."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(coroutine)
        return runner.get_loop().time()
