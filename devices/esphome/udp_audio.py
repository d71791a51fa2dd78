"""Sound of satellites whose firmware is older than the audio of the API (before 2024): UDP.

The sheet of ESPHome, section 3: the server opens a port and names it when a run begins. Packets
come from the device's address, and the sound of an answer goes back to where they came from.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from core.net.ip_addresses import peer_address

MAX_PACKET_BYTES = 4096
"Longest packet that is taken. Devices send 1024 bytes, 32 ms."

SENT_BYTES = 1024
"Length of the packets of an answer, as devices expect it."


class UdpAudio(asyncio.DatagramProtocol):
    """A UDP port for the sound of one device. Packets of other addresses are dropped."""

    def __init__(self, device_address: str, take: Callable[[bytes], None]) -> None:
        """device_address: IP address of the device. take: gets the bytes of each packet."""
        self._device, self._take = peer_address(device_address), take
        self._transport: asyncio.DatagramTransport | None = None
        self._source: tuple[str, int] | None = None
        "Where the newest packet came from."

    @property
    def port(self) -> int:
        """Number of the port."""
        assert self._transport is not None
        return int(self._transport.get_extra_info("sockname")[1])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio when the port is open."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Called by asyncio with each packet."""
        address = peer_address(addr[0])
        if self._device is None or address != self._device or len(data) > MAX_PACKET_BYTES:
            return
        self._source = addr
        self._take(data)

    def send(self, pcm: bytes) -> None:
        """Sends sound to the device, in packets. Does nothing before its first packet came."""
        if self._transport is None or self._source is None:
            return
        for at in range(0, len(pcm), SENT_BYTES):
            self._transport.sendto(pcm[at : at + SENT_BYTES], self._source)


@asynccontextmanager
async def udp_audio(
    device_address: str, own_address: str, take: Callable[[bytes], None]
) -> AsyncIterator[UdpAudio]:
    """Opens a free port while the body runs. own_address: address of this machine that the device
    reaches. Raises OSError."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(
        lambda: UdpAudio(device_address, take), local_addr=(own_address, 0)
    )
    try:
        yield protocol
    finally:
        transport.close()
