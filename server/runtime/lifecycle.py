"""Life cycle of the server: starting, ready, draining. `/health` shows it; signals end it."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

logger = logging.getLogger(__name__)

LifecycleState = Literal["starting", "ready", "draining"]
"State of the server. starting: models are loading, at the start or again after a crash."

SAME_SIGNAL_S = 0.1
"""Time in seconds within which two signals count as one: `timeout` and some supervisors send two at
once."""

CLOSE_GRACE_S = 1.0
"Time in seconds that sessions get after draining to send their goodbye and free resources."

EXIT_TIMEOUT_S = 2.0
"""Time in seconds after a second signal until the process exits without waiting for workers and
sockets. They usually end in less."""


class DrainableWork(Protocol):
    """Work that can be finished before the server stops, such as
    `pipeline.session.sessions.Sessions`."""

    @property
    def count(self) -> int:
        """Number of sessions that are open now."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Accepts no new work, and waits at most `timeout_s` seconds for the running work."""
        ...


class Lifecycle:
    """State of the server, and the request to stop."""

    def __init__(self) -> None:
        self._is_loaded: Callable[[], bool] = lambda: False
        self._stop = asyncio.Event()
        self._is_restart = False

    def watch(self, is_loaded: Callable[[], bool]) -> None:
        """Sets the function that returns True while every model is loaded. A model that crashed is
        loaded again."""
        self._is_loaded = is_loaded

    @property
    def state(self) -> LifecycleState:
        """Present state: draining once `stop` was called, else ready while all models are
        loaded."""
        if self._stop.is_set():
            return "draining"
        return "ready" if self._is_loaded() else "starting"

    def stop(self) -> None:
        """Asks the server to drain and end."""
        self._is_restart = False
        self._stop.set()

    def restart(self) -> None:
        """Asks the server to drain and start again. A signal that comes before or meanwhile ends
        it all the same."""
        if not self._stop.is_set():
            self._is_restart = True
            self._stop.set()

    @property
    def is_restart(self) -> bool:
        """True if the server is to start again once it has drained."""
        return self._is_restart

    async def stopped(self) -> None:
        """Waits until `stop` is called."""
        await self._stop.wait()


@contextmanager
def signals(lifecycle: Lifecycle) -> Iterator[None]:
    """Handles SIGTERM and SIGINT while the context is open: the first drains, the second exits at
    once."""
    loop = asyncio.get_running_loop()
    main_task = asyncio.current_task()

    first_signal_s: float | None = None

    def on_signal(number: signal.Signals) -> None:
        nonlocal first_signal_s
        if first_signal_s is None:
            first_signal_s = loop.time()
            logger.info("%s: draining; a second signal stops at once", number.name)
            lifecycle.stop()
            return
        if loop.time() - first_signal_s < SAME_SIGNAL_S:
            return
        logger.warning("%s again: stopping without waiting", number.name)
        loop.call_later(EXIT_TIMEOUT_S, os._exit, 1)  # a worker may block the exit
        if main_task is not None:
            main_task.cancel()

    handled_signals = (signal.SIGTERM, signal.SIGINT)
    for number in handled_signals:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in handled_signals:
            loop.remove_signal_handler(number)


async def drain(work: DrainableWork, timeout_s: float) -> None:
    """Drains the work for at most `timeout_s`, then returns even if sessions have not closed."""
    try:
        async with asyncio.timeout(timeout_s + CLOSE_GRACE_S):
            await work.drain(timeout_s)
    except TimeoutError:
        logger.warning("drain: some sessions did not close in time; stopping anyway")
