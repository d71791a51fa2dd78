"""One timer for everything that is sent at a steady pace in an event loop."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

SLACK_S = 0.001
"""Callbacks that are due within this time are called together, because uvloop's timers count whole
milliseconds."""


class PacingTimer:
    """Calls callbacks when their time has come. Share one object: separate timers would each wake
    up the process."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """Calls the callback once at `when`, by the running loop's clock, at most `SLACK_S`
        earlier. It must not raise."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the former loop has ended, and its timer with it
            self._loop, self._timer = loop, None
            self._calls.clear()
        entry = when, next(self._number), callback
        heapq.heappush(self._calls, entry)
        if self._calls[0] is entry:
            self._set(loop)

    def forget(self, callback: Callable[[], None]) -> None:
        """Cancels all calls of this callback, and releases it."""
        self._calls[:] = [entry for entry in self._calls if entry[2] != callback]
        heapq.heapify(self._calls)
        if not self._calls and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._calls[0][0], self._fire, loop)

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        due, until = self._calls, loop.time() + SLACK_S
        while due and due[0][0] <= until:
            heapq.heappop(due)[2]()
        if due and self._timer is None:
            self._set(loop)
