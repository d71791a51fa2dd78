"""Bounded queue between tasks, with a rule for when it is full."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Outbox(Generic[T]):
    """Queue of events for a client. No event may be lost, so a reader that lags by `limit` events
    is cut off.

    `put` never blocks. After an overflow the queue is closed and `overflowed` is True, and the
    owner ends the connection.

        outbox.put(event)
        async for event in outbox:
            ...  # ends when the queue is closed and empty
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[T] = deque()
        self._ready = asyncio.Event()
        self._taken = asyncio.Event()
        self._closed = False
        self.overflowed = False

    def put(self, item: T) -> None:
        """Adds an item. Does nothing when the queue is closed; closes it when it is full."""
        if self._closed:
            return
        if len(self._items) >= self._limit:
            self.overflowed = True
            self.close()
            return
        self._items.append(item)
        self._ready.set()

    async def room(self, below: int) -> None:
        """Waits until fewer than `below` items are queued, or the queue is closed. For senders
        whose items can be delayed."""
        while len(self._items) >= below and not self._closed:
            self._taken.clear()
            await self._taken.wait()

    def close(self) -> None:
        """Ends the queue. The reader still gets the items that are queued."""
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
