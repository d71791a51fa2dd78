"""What an aside is to be told, and in which shape it speaks."""

import asyncio
from collections.abc import AsyncIterator

from core.queues import Outbox
from signaling.realtime.protocol.beta import to_beta, to_ga
from signaling.realtime.protocol.client_events import ClientEvent
from signaling.realtime.protocol.decode import decode
from signaling.realtime.protocol.server_events import Json, to_text

MAX_UNTAKEN_EVENTS = 1024
"Without audio: minutes of a lively call."

MAX_UNTAKEN_CHARS = 4 * 1024 * 1024
"""Of these events together, which is bytes or close to it: a `session.updated` may have 256 kB. One
event alone is always kept."""

OWN_EVENTS = "earshot."
"""How our own events begin. `session.include` is of the call's client, who asked for them: clients
of the hosted service, as asides are, may fail over an event that they do not know."""


class SidebandOutbox(Outbox[str]):
    """For one aside; whoever lags, by number or by size, is cut off."""

    def __init__(
        self, max_untaken_events: int = MAX_UNTAKEN_EVENTS, *, is_beta: bool = False
    ) -> None:
        """`is_beta`: it speaks the beta shape, whatever the call's own client speaks."""
        super().__init__(max_untaken_events)
        self._is_beta = is_beta
        self.closed = asyncio.Event()
        self.has_left = False
        self._chars = 0

    def read(self, text: str) -> ClientEvent:
        """One text of the aside as an event. Raises BadEvent."""
        return decode(text, to_ga if self._is_beta else None)

    def tell(self, out: Json) -> None:
        """In its shape, unless it is none of the events that it knows."""
        if out["type"].startswith(OWN_EVENTS):
            return
        shown = to_beta(out) if self._is_beta else out
        if shown is not None:
            self.put(to_text(shown))

    def put(self, item: str) -> None:
        if self._chars and self._chars + len(item) > MAX_UNTAKEN_CHARS:
            self.cut()
        if not self.closed.is_set():
            self._chars += len(item)
            super().put(item)

    def cut(self) -> None:
        """It lags."""
        if not self.closed.is_set():
            self.overflowed = True
            self.close()

    def leave(self) -> None:
        """The client did."""
        self.has_left |= not self.closed.is_set()
        self.close()

    def close(self) -> None:
        super().close()
        self.closed.set()

    async def __aiter__(self) -> AsyncIterator[str]:
        async for text in super().__aiter__():
            self._chars -= len(text)
            yield text
