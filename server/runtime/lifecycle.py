"""Starting, ready, draining: what `/health` says, and how a signal ends the server."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

logger = logging.getLogger(__name__)

LifecycleState = Literal["starting", "ready", "draining"]

SAME_SIGNAL_S = 0.1
"Two signals within it are one: `timeout` and some supervisors send theirs twice at once."

CLOSE_GRACE_S = 1.0
"After their turns have had their time, sessions say goodbye and free what they hold."

LEAVE_TIMEOUT_S = 2.0
"After a second signal: workers die and sockets close in less, or we go without."


class DrainableWork(Protocol):
    """What lets running work finish: `pipeline.session.sessions.Sessions`."""

    @property
    def count(self) -> int: ...

    async def drain(self, timeout_s: float) -> None: ...


class Lifecycle:
    """The server's state, and the wish to stop."""

    def __init__(self) -> None:
        self._is_loaded: Callable[[], bool] = lambda: False
        self._stop = asyncio.Event()

    def watch(self, is_loaded: Callable[[], bool]) -> None:
        """From now on `is_loaded` says whether every model is there; one may be restarting."""
        self._is_loaded = is_loaded

    @property
    def state(self) -> LifecycleState:
        if self._stop.is_set():
            return "draining"
        return "ready" if self._is_loaded() else "starting"

    def stop(self) -> None:
        """Ask the server to drain and end."""
        self._stop.set()

    async def stopped(self) -> None:
        """Wait until somebody asked."""
        await self._stop.wait()


@contextmanager
def signals(lifecycle: Lifecycle) -> Iterator[None]:
    """SIGTERM and SIGINT drain; a second one leaves at once, without waiting for turns."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()

    first_at: float | None = None

    def asked(number: signal.Signals) -> None:
        nonlocal first_at
        if first_at is None:
            first_at = loop.time()
            logger.info("%s: draining; once more leaves at once", number.name)
            lifecycle.stop()
            return
        if loop.time() - first_at < SAME_SIGNAL_S:
            return
        logger.warning("%s again: leaving without waiting", number.name)
        loop.call_later(LEAVE_TIMEOUT_S, os._exit, 1)  # were a worker to keep us
        if main is not None:
            main.cancel()

    handled = (signal.SIGTERM, signal.SIGINT)
    for number in handled:
        loop.add_signal_handler(number, asked, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


async def drain(work: DrainableWork, timeout_s: float) -> None:
    """Let turns finish for `timeout_s` at most, and end whatever the work does."""
    try:
        async with asyncio.timeout(timeout_s + CLOSE_GRACE_S):
            await work.drain(timeout_s)
    except TimeoutError:
        logger.warning("drain: sessions did not close; going without them")
