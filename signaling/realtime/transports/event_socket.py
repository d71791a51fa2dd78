"""A WebSocket that says why before it closes, and lets go of clients that take nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import WSCloseCode
from aiohttp import web as aioweb

from signaling.realtime.connection import RealtimeClientGone, SlowClient
from signaling.realtime.protocol.decode import MAX_EVENT_BYTES

SUBPROTOCOL = "realtime"
"The only one answered: a browser's other offers hold its key."

HEARTBEAT_S = 20
"Proxies cut silent connections at 30 to 60 s; a vanished client is noticed within half of it more."

RESETS = 20
"So often at most in one heartbeat its timer is set anew: once a second, not for each 20 ms."

SEND_TIMEOUT_S = 10
"For one event of at most 32 kB; who needs longer cannot hear an answer in real time."

AT_ONCE_BYTES = 32 * 1024
"Transports take 64 KiB before anybody waits: behind nothing, so much is not waited for."

MAX_CHAR_BYTES = 4
"In UTF-8."

LAST_CHANCE_S = 2
"A client that did not read may still take what is queued, and the reason after it."

TOO_SLOW = (WSCloseCode.POLICY_VIOLATION, b"client too slow")

CLOSE_TIMEOUT_S = 2
"For the client's part of closing."

LINGER_S = 0.5
"""From the error to the end of the connection: a client that is still sending its large text reads
only then, and what it has not read is lost with a connection that ends."""


class EventSocket(aioweb.WebSocketResponse):
    """For texts of up to MAX_EVENT_BYTES.

    aiohttp cannot skip a larger one: it closes with 1009. `on_too_large` is awaited before that,
    and may send.
    """

    def __init__(self, *, autoping: bool = True) -> None:
        super().__init__(
            protocols=(SUBPROTOCOL,),
            heartbeat=HEARTBEAT_S,
            max_msg_size=MAX_EVENT_BYTES + 1,  # aiohttp refuses what reaches it
            compress=False,  # base64 audio does not shrink enough to wait for
            autoping=autoping,
            timeout=CLOSE_TIMEOUT_S,
        )
        self.on_too_large: Callable[[], Awaitable[None]] | None = None
        self._transport: asyncio.Transport | None = None
        self._now = asyncio.get_running_loop().time
        self._reset_at = 0.0
        "When the heartbeat's timer was set anew."

    async def open(self, request: aioweb.Request) -> None:
        """Answer the upgrade. Raises ClientGone."""
        try:
            await self.prepare(request)
        except ConnectionError as exc:
            raise RealtimeClientGone("the client left while its WebSocket opened") from exc
        self._transport = request.transport

    async def tell(self, text: str) -> None:
        """Raises ClientGone, and ClientLagging where it is not taken in time."""
        try:
            if self._is_taken_at_once(text):
                await self.send_str(text)
                return
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self.send_str(text)
        except ConnectionError as exc:  # aiohttp's own before it writes, a plain one while it waits
            raise RealtimeClientGone("the WebSocket is closed") from exc
        except TimeoutError as exc:
            raise SlowClient(f"an event was not taken within {SEND_TIMEOUT_S} s") from exc

    def _on_data_received(self) -> None:
        """aiohttp's own, less often. Were it called otherwise one day, only time would be lost."""
        now = self._now()
        if now - self._reset_at >= HEARTBEAT_S / RESETS:
            self._reset_at = now
            super()._on_data_received()

    def _is_taken_at_once(self, text: str) -> bool:
        """A timer for each event would cost as much as the rest of sending it."""
        transport = self._transport
        most_bytes = len(text) * (1 if text.isascii() else MAX_CHAR_BYTES)
        if transport is None or most_bytes > AT_ONCE_BYTES:
            return False
        return not transport.get_write_buffer_size()

    async def pong(self, message: bytes = b"") -> None:
        with suppress(ConnectionError):  # then it closes, which the next message says
            await super().pong(message)

    async def close(
        self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        if code == WSCloseCode.MESSAGE_TOO_BIG and self.on_too_large is not None:
            with suppress(ConnectionError):
                await self.on_too_large()
            await asyncio.sleep(LINGER_S)
        with suppress(TimeoutError):  # its transport closes, and `let_go` sees to the rest
            async with asyncio.timeout(SEND_TIMEOUT_S):
                return await super().close(code=code, message=message, drain=drain)
        return True


async def abort_unread(request: aioweb.Request) -> None:
    """After closing: a connection would wait for ever for what is queued to be taken."""
    transport = request.transport
    if transport is not None and transport.get_write_buffer_size():
        await asyncio.sleep(LAST_CHANCE_S)
        transport.abort()
