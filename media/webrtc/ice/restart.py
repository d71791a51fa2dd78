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
        self._old: Connection = transport._connection  # noqa: SLF001
        self._new = Connection(
            ice_controlling=self._old.ice_controlling,
            transport_policy=self._old._transport_policy,  # noqa: SLF001
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
            tuple(f"candidate:{candidate_to_sdp(candidate_from_aioice(one))}" for one in found),
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
            await (self._old if is_up else self._new).close()
        return is_up

    def _take_over(self) -> bool:
        """Moves all that aiortc has of the old connection to the new one, so that the old one can
        be closed. True unless the call ended meanwhile."""
        old, new, transport = self._old, self._new, self._transport
        if old._closing:  # noqa: SLF001 - the call ended meanwhile
            return False
        # Private names of aioice 0.13; a test with a browser checks them.
        # DTLS reads from the old queue, and would take its end for the end of the call.
        while not new._queue.empty():  # noqa: SLF001
            old._queue.put_nowait(new._queue.get_nowait())  # noqa: SLF001
        new._queue, old._queue = old._queue, asyncio.Queue()  # noqa: SLF001
        # `rtp.py` keeps this dictionary, and looks up there over which pair audio is sent.
        old._nominated |= new._nominated  # noqa: SLF001
        new._nominated, old._nominated = old._nominated, {}  # noqa: SLF001
        # aiortc waits on this object for the end of ICE.
        new._event_waiter, old._event_waiter = old._event_waiter, None  # noqa: SLF001
        transport._connection = transport.iceGatherer._connection = new  # noqa: SLF001
        transport._recv, transport._send = new.recv, new.send  # noqa: SLF001
        return True
