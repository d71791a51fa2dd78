"""The Wyoming door: it limits connections by address and number, as the protocol has no
authentication."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import nullcontext

from core.errors import EarshotError, Forbidden, OverloadedError, first_error
from core.net.acceptor import NO_LIMIT, AddressLimit, serve_streams
from core.net.ip_addresses import IpAddress, is_among, peer_address
from core.ports import Metrics, WorkGuard
from devices.fleet.directory import Device, DeviceClaims, DeviceDirectory
from devices.fleet.presence import Presence
from devices.wyoming.connection import WyomingConnection, WyomingServices
from devices.wyoming.devices import WyomingDevices
from devices.wyoming.framing import MAX_HEADER_BYTES, WyomingStream
from devices.wyoming.settings import WyomingSettings

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 2

MAX_SHARE_OF_ADDRESS = 0.5
"Largest share of the connections for one address, so that it cannot lock out all others."


class WyomingDoor:
    """The door. `run` serves; cancelling it ends every connection."""

    def __init__(
        self,
        services: WyomingServices,
        metrics: Metrics,
        guard: WorkGuard,
        settings: WyomingSettings,
        directory: DeviceDirectory,
        presence: Presence,
    ) -> None:
        self._services, self._metrics, self._guard = services, metrics, guard
        self._settings, self._directory, self._presence = settings, directory, presence
        self._devices = WyomingDevices(presence)
        self._open: dict[WyomingStream, IpAddress] = {}

    async def run(self, sockets: Sequence[socket.socket], limit: AddressLimit = NO_LIMIT) -> None:
        """Serves connections. sockets: bound and listening; they are closed at the end."""
        await serve_streams(
            sockets, self._serve_guarded, max_buffer_bytes=MAX_HEADER_BYTES, limit=limit
        )

    async def _serve_guarded(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        stream = WyomingStream(reader, writer)
        await self._guard(self._serve(stream, writer), "wyoming connection")

    async def _serve(self, stream: WyomingStream, writer: asyncio.StreamWriter) -> None:
        """Serves one connection. Raises EarshotError after the client was sent the error."""
        try:
            address = self._allowed_address(writer)
            if address is not None:
                await self._serve_device(stream, address)
                await stream.close()
        except EarshotError as error:
            await stream.refuse(error)
            raise
        finally:
            self._open.pop(stream, None)
            self._metrics.gauge("earshot_wyoming_connections", len(self._open))
            stream.abort()

    async def _serve_device(self, stream: WyomingStream, address: IpAddress) -> None:
        """Checks the device in and serves its connection. Raises EarshotError."""
        # first, because a device that is not approved gets no place
        device = await self._check_in(address)
        self._check_capacity(address)
        self._open[stream] = address
        self._metrics.gauge("earshot_wyoming_connections", len(self._open))
        try:
            async with asyncio.TaskGroup() as tasks:
                connection = WyomingConnection(
                    stream, self._services, tasks, self._presence.note_change, device
                )
                with self._devices.connected(device.id, connection) if device else nullcontext():
                    await connection.run()
        except ExceptionGroup as group:
            expected, bugs = group.split((EarshotError, ConnectionError))
            if bugs is not None or expected is None:
                raise
            errors = expected.subgroup(EarshotError)
            if errors is not None:
                raise first_error(errors) from None
            logger.debug("a wyoming client left: %s", group.exceptions[0])

    def _check_capacity(self, address: IpAddress) -> None:
        """Raises OverloadedError if all connections, or all of this address, are in use."""
        limit = self._settings.max_connections
        if len(self._open) >= limit:
            raise OverloadedError(
                f"{limit} connections are open, the limit", retry_after_s=RETRY_AFTER_S
            )
        address_limit = max(1, int(limit * MAX_SHARE_OF_ADDRESS))
        if not address.is_loopback and list(self._open.values()).count(address) >= address_limit:
            raise OverloadedError(
                f"{address_limit} connections of {address} are open, the limit for one address",
                retry_after_s=RETRY_AFTER_S,
            )

    async def _check_in(self, address: IpAddress) -> Device | None:
        """Returns the device at this address: the protocol has no other identification.

        None: this machine itself, where it is trusted. Raises Forbidden not_approved or blocked,
        and StorageError.
        """
        if address.is_loopback and self._settings.trusts_this_machine:
            return None
        name = str(address)
        device = await self._directory.check_in(
            DeviceClaims(kind="wyoming", hardware_id=name, address=name)
        )
        if device.standing == "blocked":
            raise Forbidden(f"{name} was blocked", code="blocked")
        if device.standing == "new":
            raise Forbidden(
                f"{name} is not approved; approve it on Earshot's page, or on the server with"
                f" `earshot devices approve {name}`",
                code="not_approved",
            )
        return device

    def _allowed_address(self, writer: asyncio.StreamWriter) -> IpAddress | None:
        """Returns the client's address; None: the connection is dropped."""
        peer = writer.get_extra_info("peername")
        address = peer_address(peer[0]) if peer else None
        if address is None:
            return None  # closed already
        if is_among(address, self._settings.networks):
            return address
        logger.warning("! wyoming: refused %s, because it is not in an allowed network", address)
        self._metrics.count("earshot_errors", code="forbidden")
        return None
