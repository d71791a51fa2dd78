"""A WebSocket written by hand, for clients that do what no library does."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.signaling.realtime.servers import Server

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10

UPGRADE = (
    "GET /v1/realtime{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)

BUFFER_BYTES = 65_536
"The receive buffer of the kernel for unread data; the kernel uses twice as much."


@dataclass
class RawClient:
    """A WebSocket client that answers nothing by itself."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def frame(self) -> tuple[int, bytes]:
        """Returns (opcode, payload) of the next frame (RFC 6455 section 5.2)."""
        head = await self.reader.readexactly(2)
        size = head[1] & 0x7F
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2))
        elif size == 127:
            size = int.from_bytes(await self.reader.readexactly(8))
        return head[0] & 0x0F, await self.reader.readexactly(size)

    async def until(self, wanted: int) -> bytes:
        while True:
            opcode, payload = await self.frame()
            if opcode == wanted:
                return payload

    def stop_reading(self) -> None:
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    def resume_reading(self) -> None:
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]

    def send(self, opcode: int, payload: bytes) -> None:
        """Sends a payload of at most 125 bytes, masked with zeros, which is a valid mask."""
        assert len(payload) < 126
        self.writer.write(bytes([0x80 | opcode, 0x80 | len(payload)]) + bytes(4) + payload)


@contextlib.asynccontextmanager
async def upgraded(server: Server, query: str = "") -> AsyncIterator[RawClient]:
    """Connects with a small receive buffer, so that the server soon notices a client that does not
    read."""
    url = server.client._base_url
    assert url is not None
    assert url.host is not None
    assert url.port is not None
    plug = socket.socket()
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    plug.connect((url.host, url.port))
    reader, writer = await asyncio.open_connection(sock=plug)
    writer.write(UPGRADE.format(query=query).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()
