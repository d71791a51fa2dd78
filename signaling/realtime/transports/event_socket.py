"""WebSocket that gives a reason before it closes, and drops clients that do not read."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import WSCloseCode
from aiohttp import web as aioweb

from core.http.client_connection import ClientDisconnected
from signaling.realtime.event_connection import SlowClient
from signaling.realtime.protocol.decode import MAX_EVENT_BYTES

SUBPROTOCOL = "realtime"
"The only subprotocol in the answer: a browser's other offers hold its key."

HEARTBEAT_S = 20
"""Interval of pings, in seconds. Proxies cut silent connections after 30 to 60 s. A client that
does not answer within half the interval counts as gone."""

SEND_TIMEOUT_S = 10
"""Time limit in seconds for one event of at most 32 kB. A slower client cannot play a response in
real time."""

AT_ONCE_BYTES = 32 * 1024
"""Largest text that is sent without a timeout if nothing is queued: transports buffer 64 KiB
without blocking."""

MAX_CHAR_BYTES = 4
"Most bytes of one character in UTF-8."

LAST_CHANCE_S = 2
"""Time in seconds in which a client that did not read may still receive what is queued, and the
reason."""

TOO_SLOW = (WSCloseCode.POLICY_VIOLATION, b"client too slow")
"Close code and reason for a client that does not read."

CLOSE_TIMEOUT_S = 2
"Time limit in seconds for the client's part of the closing handshake."

LINGER_S = 0.5
"""Time in seconds from the error to the end of the connection. A client that is still sending a
large text reads only afterwards, and loses what it has not read when the connection ends."""


class EventSocket(aioweb.WebSocketResponse):
    """WebSocket for texts of up to MAX_EVENT_BYTES. aiohttp cannot skip a larger text: it closes
    with 1009. `on_too_large` is awaited before that, and may send."""

    def __init__(self, *, autoping: bool = True) -> None:
        super().__init__(
            protocols=(SUBPROTOCOL,),
            heartbeat=HEARTBEAT_S,
            max_msg_size=MAX_EVENT_BYTES + 1,  # aiohttp refuses a message of this size already
            compress=False,  # base64 audio does not shrink enough to be worth the delay
            autoping=autoping,
            timeout=CLOSE_TIMEOUT_S,
        )
        self.on_too_large: Callable[[], Awaitable[None]] | None = None
        self._transport: asyncio.Transport | None = None

    async def open(self, request: aioweb.Request) -> None:
        """Answers the upgrade request. Raises ClientDisconnected."""
        try:
            await self.prepare(request)
        except ConnectionError as exc:
            raise ClientDisconnected(
                "the client disconnected while its WebSocket was opening"
            ) from exc
        self._transport = request.transport

    async def send_event(self, text: str) -> None:
        """Sends one event. Raises ClientDisconnected, and SlowClient if the client does not read it
        in time."""
        try:
            if self._is_taken_at_once(text):
                await self.send_str(text)
                return
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self.send_str(text)
        except ConnectionError as exc:  # aiohttp's own before it writes, a plain one while it waits
            raise ClientDisconnected("the WebSocket is closed") from exc
        except TimeoutError as exc:
            raise SlowClient(f"the client did not read an event within {SEND_TIMEOUT_S} s") from exc

    def _is_taken_at_once(self, text: str) -> bool:
        """Returns True if sending cannot block. A timer for each event would cost as much as
        sending it."""
        transport = self._transport
        most_bytes = len(text) * (1 if text.isascii() else MAX_CHAR_BYTES)
        if transport is None or most_bytes > AT_ONCE_BYTES:
            return False
        return not transport.get_write_buffer_size()

    async def pong(self, message: bytes = b"") -> None:
        """Answers a ping. A closed connection is no error here."""
        with suppress(ConnectionError):  # the connection closes, and the next message reports that
            await super().pong(message)

    async def close(
        self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        """Closes the WebSocket within SEND_TIMEOUT_S, after an error event if a text was too
        large."""
        if code == WSCloseCode.MESSAGE_TOO_BIG and self.on_too_large is not None:
            with suppress(ConnectionError):
                await self.on_too_large()
            await asyncio.sleep(LINGER_S)
        with suppress(TimeoutError):  # the transport closes, and `abort_unread` does the rest
            async with asyncio.timeout(SEND_TIMEOUT_S):
                return await super().close(code=code, message=message, drain=drain)
        return True


async def abort_unread(request: aioweb.Request) -> None:
    """Aborts a closed connection if data is queued: it would wait without limit for the client to
    read."""
    transport = request.transport
    if transport is not None and transport.get_write_buffer_size():
        await asyncio.sleep(LAST_CHANCE_S)
        transport.abort()
