"""Queue of events for one sideband connection, in its shape of the API."""

import asyncio
from collections.abc import AsyncIterator

from core.queues import Outbox
from signaling.realtime.protocol.beta import to_beta, to_ga
from signaling.realtime.protocol.client_events import ClientEvent
from signaling.realtime.protocol.decode import decode
from signaling.realtime.protocol.server_events import Json, to_text

MAX_UNREAD_EVENTS = 1024
"Limit of unread events. Without audio events it covers minutes of a lively call."

MAX_UNREAD_CHARS = 4 * 1024 * 1024
"""Limit of the unread events' characters, which are about as many bytes: a `session.updated` may
have 256 kB. A single event is always kept."""

OWN_EVENTS = "earshot."
"""Prefix of our own events. They are sent only to the call's own client, which asked for them in
`session.include`: clients of OpenAI's service may fail over an unknown event."""


class SidebandOutbox(Outbox[str]):
    """Unread events of one sideband connection. Too many or too large ones end the connection."""

    def __init__(
        self, max_unread_events: int = MAX_UNREAD_EVENTS, *, is_beta: bool = False
    ) -> None:
        """Creates an empty queue. `is_beta`: its client uses the beta shape, independent of the
        call's client."""
        super().__init__(max_unread_events)
        self._is_beta = is_beta
        self.closed = asyncio.Event()
        self.is_abandoned = False
        self._chars = 0

    def read(self, text: str) -> ClientEvent:
        """Decodes one text of the client. Raises BadEvent."""
        return decode(text, to_ga if self._is_beta else None)

    def send(self, out: Json) -> None:
        """Queues an event in the client's shape, unless that shape does not have it."""
        if out["type"].startswith(OWN_EVENTS):
            return
        shown = to_beta(out) if self._is_beta else out
        if shown is not None:
            self.put(to_text(shown))

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
