"""Starting, ready, draining: what `/health` says, and how a signal ends the server."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from core.errors import Overloaded

logger = logging.getLogger(__name__)

State = Literal["starting", "ready", "draining"]

LEAVE_TIMEOUT_S = 2.0
"After a second signal: workers die and sockets close in less, or we go without."


class Drains(Protocol):
    """What lets running work finish: `pipeline.sessions.Sessions`."""

    async def drain(self, timeout_s: float) -> None: ...


class Lifecycle:
    """The server's state, and the wish to stop. `is_loaded` asks whether the models are there."""

    def __init__(self, is_loaded: Callable[[], bool] = lambda: True) -> None:
        self._is_loaded = is_loaded
        self._stop = asyncio.Event()

    @property
    def state(self) -> State:
        if self._stop.is_set():
            return "draining"
        return "ready" if self._is_loaded() else "starting"

    def stop(self) -> None:
        """Ask the server to drain and end."""
        self._stop.set()

    async def stopped(self) -> None:
        """Wait until somebody asked."""
        await self._stop.wait()

    def check_open(self) -> None:
        """Raises Overloaded (`draining`) once the server is about to end."""
        if self._stop.is_set():
            raise Overloaded("the server is restarting", retry_after_s=5, code="draining")


@contextmanager
def signals(lifecycle: Lifecycle) -> Iterator[None]:
    """SIGTERM and SIGINT drain; a second one leaves at once, without waiting for turns."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()

    def asked(number: signal.Signals) -> None:
        if lifecycle.state != "draining":
            logger.info("%s: draining; once more leaves at once", number.name)
            lifecycle.stop()
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


async def drain(work: Drains, timeout_s: float) -> None:
    """Let turns finish, but never longer than `timeout_s`, whatever the work does."""
    try:
        async with asyncio.timeout(timeout_s):
            await work.drain(timeout_s)
    except TimeoutError:
        logger.warning("drain: not all turns ended within %g s", timeout_s)
