"""The bounded hand-over between tasks: it has a size, and a policy for when it is full."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Outbox(Generic[T]):
    """For events to a client: nothing may be lost, so a reader that lags `limit` items is cut off.

    `put` never blocks; after an overflow the queue is closed and `overflowed` is true, and the
    owner ends the connection.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[T] = deque()
        self._ready = asyncio.Event()
        self._taken = asyncio.Event()
        self._closed = False
        self.overflowed = False

    def put(self, item: T) -> None:
        if self._closed:
            return
        if len(self._items) >= self._limit:
            self.overflowed = True
            self.close()
            return
        self._items.append(item)
        self._ready.set()

    async def room(self, below: int) -> None:
        """For what can wait: until fewer than `below` items are queued, or the queue is closed."""
        while len(self._items) >= below and not self._closed:
            self._taken.clear()
            await self._taken.wait()

    def close(self) -> None:
        self._closed = True
        self._ready.set()
        self._taken.set()

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            while self._items:
                self._taken.set()
                yield self._items.popleft()
            if self._closed:
                return
            self._ready.clear()
            await self._ready.wait()
