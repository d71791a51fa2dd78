"""Queue of texts for one sideband connection, in any dialect of the events."""

import asyncio
from collections.abc import AsyncIterator

from core.queues import Outbox

MAX_UNREAD_EVENTS = 1024
"""Limit of unread events. Without audio events it covers minutes of a lively call, with those of
both directions half a minute."""

MAX_UNREAD_CHARS = 4 * 1024 * 1024
"""Limit of the unread events' characters, which are about as many bytes: a `session.updated` may
have 256 kB. A single event is always kept."""


class SidebandQueue(Outbox[str]):
    """Unread events of one sideband connection. Too many or too large ones end the connection."""

    def __init__(self, max_unread_events: int = MAX_UNREAD_EVENTS) -> None:
        super().__init__(max_unread_events)
        self.closed = asyncio.Event()
        self.is_abandoned = False
        self._chars = 0

    def put(self, item: str) -> None:
        if self._chars and self._chars + len(item) > MAX_UNREAD_CHARS:
            self.cut()
        if not self.closed.is_set():
            self._chars += len(item)
            super().put(item)

    def cut(self) -> None:
        """Ends the queue because the client is too slow."""
        if not self.closed.is_set():
            self.overflowed = True
            self.close()

    def abandon(self) -> None:
        """Ends the queue because the client has left."""
        self.is_abandoned |= not self.closed.is_set()
        self.close()

    def close(self) -> None:
        super().close()
        self.closed.set()

    async def __aiter__(self) -> AsyncIterator[str]:
        async for text in super().__aiter__():
            self._chars -= len(text)
            yield text
