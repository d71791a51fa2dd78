"""A WebSocket that tells its client what it sent too much of before it closes for it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import WSCloseCode
from aiohttp import web as aioweb

from signaling.realtime.incoming import MAX_EVENT_BYTES

SUBPROTOCOL = "realtime"
"The only one answered: a browser's other offers hold its key."

HEARTBEAT_S = 20
"Proxies cut silent connections at 30 to 60 s; a vanished client is noticed within half of it more."

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

    async def close(
        self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        if code == WSCloseCode.MESSAGE_TOO_BIG and self.on_too_large is not None:
            with suppress(ConnectionResetError):
                await self.on_too_large()
            await asyncio.sleep(LINGER_S)
        return await super().close(code=code, message=message, drain=drain)
