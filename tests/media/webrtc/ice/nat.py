"""A router in front of a client that can give the client another port."""

import asyncio
from collections.abc import Callable
from typing import Any


class Nat:
    """A NAT between a client and us. `move` gives the client another port, as happens to a phone
    that changes from Wi-Fi to its carrier."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._inside: asyncio.DatagramTransport | None = None
        self._outside: asyncio.DatagramTransport | None = None
        self._client: Any = None
        self._packets = 0
        self.answered = asyncio.Event()
        "Set when a second of sound came to the client's newest port."

    @property
    def port(self) -> int:
        assert self._inside is not None
        return int(self._inside.get_extra_info("sockname")[1])

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        host = self._server[0]
        self._inside, _ = await loop.create_datagram_endpoint(
            lambda: _Leg(self._from_client), local_addr=(host, 0)
        )
        await self.move()

    async def move(self) -> None:
        if self._outside is not None:
            self._outside.close()
        self._packets = 0
        self.answered.clear()
        self._outside, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Leg(self._from_server), local_addr=(self._server[0], 0)
        )

    def close(self) -> None:
        for leg in (self._inside, self._outside):
            if leg is not None:
                leg.close()

    def _from_client(self, data: bytes, address: Any) -> None:
        self._client = address
        if self._outside is not None:
            self._outside.sendto(data, self._server)

    def _from_server(self, data: bytes, address: Any) -> None:
        self._packets += 1
        if self._packets >= 60:
            self.answered.set()
        if self._inside is not None and self._client is not None:
            self._inside.sendto(data, self._client)


class _Leg(asyncio.DatagramProtocol):
    def __init__(self, take: Callable[[bytes, Any], None]) -> None:
        self._take = take

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._take(data, addr)
