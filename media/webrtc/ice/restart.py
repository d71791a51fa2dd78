"""ICE restart of a living connection (RFC 8445, section 9), which aiortc lacks.

A second aioice connection is made, with new sockets and credentials. While it connects, audio goes
over the first one. Then it replaces the first one in aiortc's transport, and DTLS above it notices
nothing. If it cannot connect, everything stays as it was.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from aioice import Connection
from aiortc import RTCIceTransport
from aiortc.rtcicetransport import candidate_from_aioice, candidate_to_aioice
from aiortc.sdp import candidate_to_sdp

from core.errors import Conflict
from media.webrtc.aiortc_internals.transport import (
    connection_of,
    is_closing,
    move_transport,
    transport_policy,
)
from media.webrtc.ice.candidates import read_candidate
from media.webrtc.ice.gatherer import CandidateGatherer
from media.webrtc.ice.settings import IceSettings

logger = logging.getLogger(__name__)

TIMEOUT_S = 15.0
"Longest time for the restart, as for a new connection."


@dataclass(frozen=True, slots=True)
class IceParameters:
    """Our side of the new ICE session, for the answer."""

    ufrag: str
    "User name fragment of our side."
    password: str
    candidates: tuple[str, ...]
    "Our candidates, as `candidate:...`."


class IceRestart:
    """One restart of a connection.

    Example:
        restart = IceRestart(peer.ice, settings)
        ours = await restart.begin(ufrag, password, candidates)     # for the answer
        is_new = await restart.run()            # in a task; False: the old connection stays
    """

    def __init__(self, transport: RTCIceTransport, settings: IceSettings) -> None:
        self._transport, self._settings = transport, settings
        self._old_connection = connection_of(transport)
        self._new = Connection(
            ice_controlling=self._old_connection.ice_controlling,
            transport_policy=transport_policy(self._old_connection),
        )

    async def begin(self, ufrag: str, password: str, candidates: Iterable[str]) -> IceParameters:
        """Takes the other side's credentials and candidates, gathers ours, and returns them.

        Raises Conflict before the first connection is up, RequestError, OverloadedError.
        """
        if self._transport.state != "completed":
            raise Conflict("there is no connection yet to restart", code="ice_not_connected")
        self._new.remote_username, self._new.remote_password = ufrag, password
        await self.add_candidates(candidates)
        CandidateGatherer(self._new, self._settings).install()
        try:
            await self._new.gather_candidates()
        except BaseException:
            await self._new.close()
            raise
        found = self._new.local_candidates
        return IceParameters(
            self._new.local_username,
            self._new.local_password,
            tuple(
                f"candidate:{candidate_to_sdp(candidate_from_aioice(candidate))}"
                for candidate in found
            ),
        )

    async def add_candidates(self, candidates: Iterable[str]) -> None:
        """Adds candidates like `Peer.add_candidates`. Raises RequestError."""
        for candidate in [read_candidate(line) for line in candidates]:
            if candidate is not None:
                await self._new.add_remote_candidate(candidate_to_aioice(candidate))

    async def close(self) -> None:
        """Gives the restart up before `run`."""
        await self._new.close()

    async def run(self) -> bool:
        """Connects and replaces the old connection. False: it did not connect in time. Cancelling
        it gives the restart up."""
        is_up = False
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._new.connect()
            is_up = self._take_over()
        except (ConnectionError, TimeoutError):
            logger.info("= ICE restart failed; the old connection stays")
        finally:
            await (self._old_connection if is_up else self._new).close()
        return is_up

    def _take_over(self) -> bool:
        """Puts the new connection in the place of the old one. True unless the call ended
        meanwhile."""
        if is_closing(self._old_connection):  # the call ended meanwhile
            return False
        move_transport(self._transport, self._old_connection, self._new)
        return True
