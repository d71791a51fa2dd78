"""Gathers our ICE candidates, in the place of aioice.

aioice takes any UDP port, one STUN and one TURN server, and no loopback address. This module adds a
range of ports, TCP as a fallback for TURN, and several servers. It also adds the public address of
a 1:1 NAT, and 127.0.0.1 on a machine without a network. It replaces one method of one aioice object
(docs/adr/0022).
"""

import asyncio
import ipaddress
import logging
import random
import socket
from collections.abc import Iterable
from contextlib import suppress

from aioice import Candidate, Connection
from aioice.candidate import candidate_foundation, candidate_priority
from aioice.ice import StunProtocol, relayed_candidate, server_reflexive_candidate
from aioice.stun import TransactionError
from aioice.turn import UDP_SOCKET_BUFFER_SIZE
from aiortc import RTCIceGatherer

from media.webrtc.aiortc_internals.transport import (
    add_socket,
    connection_of,
    replace_close,
    replace_gathering,
)
from media.webrtc.ice.candidates import no_candidates
from media.webrtc.ice.consent import renew_consent
from media.webrtc.ice.settings import IceServer, IceSettings, IceUrl, PortRange

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
"Address that is used on a machine without a network."

RELAY_CLOSE_TIMEOUT_S = 1.0
"""Longest time for giving a relayed address back, which takes one round trip. Without an answer
aioice repeats the request for 40 s, and would keep the peer's other sockets open meanwhile. The
server frees the address after 10 minutes anyway."""

MAX_SRTP_BYTES = 1500
"Size of pylibsrtp's buffer. A longer packet causes an exception that aiortc does not expect."

_UNREACHABLE = (OSError, TransactionError, TimeoutError)
"Errors of aioice for a STUN or TURN server that does not answer, or refuses."


def gather_with(gatherer: RTCIceGatherer, settings: IceSettings) -> None:
    """Makes this gatherer gather as the settings say."""
    CandidateGatherer(connection_of(gatherer), settings).install()


class _IceSocket(StunProtocol):
    """UDP socket that does not parse audio as STUN, as aioice would do with each packet.

    Any sender can reach it. Datagrams that would end aiortc's task are dropped here.
    """

    def datagram_received(self, data: bytes | str, addr: tuple[object, ...]) -> None:
        if not data:
            return
        if isinstance(data, bytes) and 128 <= data[0] < 192:  # RTP, RTCP (RFC 7983)
            if len(data) <= MAX_SRTP_BYTES:
                self.receiver.data_received(data, self.local_candidate.component)
        else:
            super().datagram_received(data, addr)


class CandidateGatherer:
    """Gathers the candidates of one connection."""

    def __init__(self, connection: Connection, settings: IceSettings) -> None:
        self._connection, self._settings = connection, settings

    def install(self) -> None:
        """Replaces aioice's gathering and consent check for this connection."""
        replace_gathering(self._connection, self.gather)
        renew_consent(self._connection)

    async def gather(
        self, component: int, addresses: list[str], timeout: int = 5
    ) -> list[Candidate]:
        """Returns all candidates, within the settings' timeout; `timeout` is aioice's and is
        ignored. Raises OverloadedError when there is none."""
        hosts = [] if self._settings.is_relay_only else await self._hosts(component, addresses)
        found = [host.local_candidate for host in hosts]
        found += [self._public(host) for host in hosts if self._is_behind_nat(host)]
        async with asyncio.TaskGroup() as tasks:
            servers = self._settings.minted()
            requests = [tasks.create_task(self._reflexive(hosts, servers))]
            requests += [tasks.create_task(self._relayed(component, server)) for server in servers]
        for task in requests:
            found += task.result()
        if not found:
            raise no_candidates()
        return found

    async def _hosts(self, component: int, addresses: list[str]) -> list[StunProtocol]:
        made = []
        for address in addresses or [LOOPBACK]:
            try:
                made.append(await self._host(component, address))
            except OSError as error:
                logger.warning("! no UDP port on %s: %s", address, error)
        return made

    async def _host(self, component: int, address: str) -> StunProtocol:
        """Opens a socket on this address. Raises OSError."""
        bound = _bind(address, self._settings.ports)
        loop = asyncio.get_running_loop()
        try:
            _, protocol = await loop.create_datagram_endpoint(
                lambda: _IceSocket(self._connection), sock=bound
            )
        except BaseException:
            bound.close()
            raise
        protocol.local_candidate = _candidate("host", component, *bound.getsockname()[:2])
        add_socket(self._connection, protocol)
        return protocol

    def _is_behind_nat(self, host: StunProtocol) -> bool:
        public = self._settings.public_address
        return bool(public) and _version(host.local_candidate.host) == _version(public)

    def _public(self, host: StunProtocol) -> Candidate:
        """Returns the candidate that a STUN server would report, with the address from the
        settings."""
        inner = host.local_candidate
        return _candidate(
            "srflx",
            inner.component,
            self._settings.public_address,
            inner.port,
            related=(inner.host, inner.port),
        )

    async def _reflexive(
        self, hosts: Iterable[StunProtocol], servers: Iterable[IceServer]
    ) -> list[Candidate]:
        """Returns the addresses that STUN servers see; IPv4 only, because only IPv4 is
        translated."""
        urls = [IceUrl.parse(url) for server in servers for url in server.urls]
        async with asyncio.TaskGroup() as tasks:
            requests = [
                tasks.create_task(self._reflexive_candidate(host, url))
                for url in urls
                if url.scheme == "stun"
                for host in hosts
                if _version(host.local_candidate.host) == 4
            ]
        found = [task.result() for task in requests]
        return list(
            {
                (candidate.host, candidate.port): candidate
                for candidate in found
                if candidate is not None
            }.values()
        )

    async def _reflexive_candidate(self, host: StunProtocol, url: IceUrl) -> Candidate | None:
        try:
            async with asyncio.timeout(self._settings.gather_timeout_s):
                return (await server_reflexive_candidate(host, (url.host, url.port)))[0]
        except _UNREACHABLE as error:
            logger.warning("! STUN server %s:%d: %s", url.host, url.port, _reason(error))
            return None

    async def _relayed(self, component: int, server: IceServer) -> list[Candidate]:
        """Returns an address on this server, by the first of its URLs that works; none if no URL
        works."""
        urls = [url for url in map(IceUrl.parse, server.urls) if url.scheme != "stun"]
        for url in urls:
            try:
                async with asyncio.timeout(self._settings.gather_timeout_s / len(urls)):
                    return [await self._allocate(component, server, url)]
            except _UNREACHABLE as error:
                logger.warning(
                    "! TURN server %s:%d over %s: %s",
                    url.host,
                    url.port,
                    url.transport,
                    _reason(error),
                )
        return []

    async def _allocate(self, component: int, server: IceServer, url: IceUrl) -> Candidate:
        candidate, protocol = await relayed_candidate(
            component=component,
            hide_related_address=self._settings.is_relay_only,
            protocol_factory=lambda: _IceSocket(self._connection),
            turn_server=(url.host, url.port),
            turn_username=server.username,
            turn_password=server.credential,
            turn_ssl=url.scheme == "turns",
            turn_transport=url.transport,
        )
        _close_in_time(protocol)
        add_socket(self._connection, protocol)
        return candidate


def _bind(address: str, ports: PortRange | None) -> socket.socket:
    """Returns a UDP socket that is bound to the address. It tries the range of ports from a random
    place. Raises OSError."""
    family = socket.AF_INET6 if _version(address) == 6 else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UDP_SOCKET_BUFFER_SIZE)
        _bind_in(bound, address, ports)
    except BaseException:
        bound.close()
        raise
    return bound


def _bind_in(bound: socket.socket, address: str, ports: PortRange | None) -> None:
    if ports is None:
        bound.bind((address, 0))
        return
    size = ports.last - ports.first + 1
    start = random.randrange(size)
    for step in range(size):
        with suppress(OSError):
            bound.bind((address, ports.first + (start + step) % size))
            return
    raise OSError(f"none of the ports {ports.first}-{ports.last} is free")


def _candidate(
    kind: str, component: int, host: str, port: int, related: tuple[str, int] | None = None
) -> Candidate:
    return Candidate(
        foundation=candidate_foundation(kind, "udp", related[0] if related else host),
        component=component,
        transport="udp",
        priority=candidate_priority(component, kind),
        host=host,
        port=port,
        type=kind,
        related_address=related[0] if related else None,
        related_port=related[1] if related else None,
    )


def _close_in_time(protocol: StunProtocol) -> None:
    close = protocol.close

    async def close_in_time() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(RELAY_CLOSE_TIMEOUT_S):
                await close()

    replace_close(protocol, close_in_time)


def _version(address: str) -> int:
    return ipaddress.ip_address(address).version


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
