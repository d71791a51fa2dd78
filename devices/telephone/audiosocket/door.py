"""The door for Asterisk's AudioSocket, on a port of its own. The protocol has no key, so it admits
by the address of the connection and by the UUID of the call."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from uuid import UUID

from core.errors import EarshotError, Forbidden
from core.net.acceptor import NO_LIMIT, AddressLimit, serve_streams
from core.net.ip_addresses import is_among, peer_address
from core.ports import Metrics, WorkGuard
from devices.telephone.audiosocket.line import READ_BYTES, AudioSocketLine
from devices.telephone.calls import TelephoneCalls
from devices.telephone.number import number_in

logger = logging.getLogger(__name__)


class AudioSocketDoor:
    """The door. `run` serves; cancelling it ends every call."""

    def __init__(self, calls: TelephoneCalls, metrics: Metrics, guard: WorkGuard) -> None:
        self._calls, self._metrics, self._guard = calls, metrics, guard

    async def run(self, sockets: Sequence[socket.socket], limit: AddressLimit = NO_LIMIT) -> None:
        """Serves connections. sockets: bound and listening; they are closed at the end."""
        await serve_streams(sockets, self._serve_guarded, max_buffer_bytes=READ_BYTES, limit=limit)

    async def _serve_guarded(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        line = AudioSocketLine(reader, writer)
        try:
            if self._is_allowed(writer):
                await self._guard(self._serve(line), "AudioSocket call")
        finally:
            line.abort()

    async def _serve(self, line: AudioSocketLine) -> None:
        """Serves one call. Raises EarshotError, also in an ExceptionGroup."""
        try:
            self._calls.check_capacity()  # before anything is read
            uuid = await line.read_uuid()
            if uuid is None:
                return
            await self._calls.serve(line, "audiosocket", self._caller_of(uuid))
        except (EarshotError, ExceptionGroup):
            await line.hang_up()
            raise

    def _caller_of(self, uuid: UUID) -> str:
        """Returns the caller's number, else the UUID of the call. Raises Forbidden for a call that
        is not answered."""
        settings = self._calls.settings
        number = None if settings.caller_uuid is None else number_in(settings.caller_uuid, uuid)
        if number is not None:
            if settings.allowed_callers and number not in settings.allowed_callers:
                raise Forbidden(
                    "the caller is not in telephone.allowed_callers", code="unknown_caller"
                )
            return number
        if settings.call_uuids and uuid not in settings.call_uuids:
            raise Forbidden(f"the UUID {uuid} is not in telephone.call_uuids", code="unknown_call")
        return str(uuid)

    def _is_allowed(self, writer: asyncio.StreamWriter) -> bool:
        """Returns whether the peer's address may connect; the log says if not."""
        peer = writer.get_extra_info("peername")
        address = peer_address(peer[0]) if peer else None
        if address is None:
            return False  # closed already
        if is_among(address, self._calls.settings.networks):
            return True
        logger.warning("! telephone: refused %s, because it is not in an allowed network", address)
        self._metrics.count("earshot_errors", code="forbidden")
        return False
