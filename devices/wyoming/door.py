"""Who may connect over Wyoming, and how many: it has no authentication of its own."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Protocol

from wyoming.error import Error

from core.ports import Metrics
from core.tasks import unwrapped
from devices.wyoming.connection import Connection, Services
from devices.wyoming.wire import MAX_HEADER_BYTES, Wire

logger = logging.getLogger(__name__)

Network = IPv4Network | IPv6Network


class Guard(Protocol):
    """Runs a connection so that a bug in it ends that connection only."""

    async def __call__(self, work: Awaitable[None], name: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WyomingSettings:
    networks: tuple[Network, ...]
    "Whose connections are taken."
    max_connections: int


class WyomingDoor:
    """`run` serves; cancelling it ends every connection."""

    def __init__(
        self, services: Services, metrics: Metrics, guard: Guard, settings: WyomingSettings
    ) -> None:
        self._services, self._metrics, self._guard = services, metrics, guard
        self._settings = settings
        self._open: set[Wire] = set()

    async def run(self, sockets: Sequence[socket.socket]) -> None:
        """`sockets`: bound and listening; they are closed with it."""
        async with asyncio.TaskGroup() as tasks:

            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                wire = Wire(reader, writer)
                tasks.create_task(self._guard(self._serve(wire, writer), "wyoming connection"))

            servers = [
                await asyncio.start_server(connected, sock=one, limit=MAX_HEADER_BYTES)
                for one in sockets
            ]
            try:
                await asyncio.Event().wait()
            finally:
                for server in servers:
                    server.close()

    async def _serve(self, wire: Wire, writer: asyncio.StreamWriter) -> None:
        try:
            if await self._is_let_in(wire, writer):
                self._open.add(wire)
                self._metrics.gauge("earshot_wyoming_connections", len(self._open))
                await self._talk(wire)
        finally:
            self._open.discard(wire)
            self._metrics.gauge("earshot_wyoming_connections", len(self._open))
            writer.close()

    async def _talk(self, wire: Wire) -> None:
        try:
            with unwrapped():
                async with asyncio.TaskGroup() as tasks:
                    await Connection(wire, self._services, tasks).run()
        except ConnectionError as gone:
            logger.debug("a wyoming client left: %s", gone)

    async def _is_let_in(self, wire: Wire, writer: asyncio.StreamWriter) -> bool:
        peer = writer.get_extra_info("peername")
        address = ip_address(peer[0].partition("%")[0]) if peer else None
        mapped = getattr(address, "ipv4_mapped", None)
        if address is None or not any(
            (mapped or address) in one for one in self._settings.networks
        ):
            logger.warning("! wyoming: %s is in no allowed network; it is not served", address)
            self._metrics.count("earshot_errors", code="forbidden")
            return False
        if len(self._open) >= self._settings.max_connections:
            why = f"{self._settings.max_connections} connections are open, the limit"
            await wire.send(Error(text=why, code="server_full"))
            return False
        return True
