"""Who may connect over Wyoming, and how many: it has no authentication of its own."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.errors import EarshotError, Overloaded, first_error
from core.ports import Metrics
from devices.networks import Network, address_of, is_among
from devices.wyoming.connection import Connection, Services
from devices.wyoming.wire import MAX_HEADER_BYTES, Wire

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 2


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
        is_over = False
        async with asyncio.TaskGroup() as tasks:

            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                wire = Wire(reader, writer)
                if is_over:  # taken by the socket just before it closed
                    wire.abort()
                    return
                tasks.create_task(self._guard(self._serve(wire, writer), "wyoming connection"))

            servers = [
                await asyncio.start_server(connected, sock=one, limit=MAX_HEADER_BYTES)
                for one in sockets
            ]
            try:
                await asyncio.Event().wait()
            finally:
                is_over = True
                for server in servers:
                    server.close()

    async def _serve(self, wire: Wire, writer: asyncio.StreamWriter) -> None:
        """Raises EarshotError, when the client was told."""
        try:
            if self._is_let_in(writer):
                await self._talk(wire)
                await wire.close()
        except EarshotError as error:
            await wire.refuse(error)
            raise
        finally:
            self._open.discard(wire)
            self._metrics.gauge("earshot_wyoming_connections", len(self._open))
            wire.abort()

    async def _talk(self, wire: Wire) -> None:
        """Raises EarshotError."""
        if len(self._open) >= self._settings.max_connections:
            why = f"{self._settings.max_connections} connections are open, the limit"
            raise Overloaded(why, retry_after_s=RETRY_AFTER_S)
        self._open.add(wire)
        self._metrics.gauge("earshot_wyoming_connections", len(self._open))
        try:
            async with asyncio.TaskGroup() as tasks:
                await Connection(wire, self._services, tasks).run()
        except ExceptionGroup as group:
            expected, bugs = group.split((EarshotError, ConnectionError))
            if bugs is not None or expected is None:
                raise
            errors = expected.subgroup(EarshotError)
            if errors is not None:
                raise first_error(errors) from None
            logger.debug("a wyoming client left: %s", group.exceptions[0])

    def _is_let_in(self, writer: asyncio.StreamWriter) -> bool:
        peer = writer.get_extra_info("peername")
        address = address_of(peer[0]) if peer else None
        if address is None:
            return False  # gone already
        if is_among(address, self._settings.networks):
            return True
        logger.warning("! wyoming: %s is in no allowed network; it is not served", address)
        self._metrics.count("earshot_errors", code="forbidden")
        return False
