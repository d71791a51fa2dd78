"""Access to private parts of a call's ICE and DTLS transports in aiortc and aioice.

Each function says in plain words what it does, so that no other module has to know these names.
The table of them is `core.packages.private_names.CALL_NAMES`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aioice import Candidate, Connection, TransportPolicy
from aioice.ice import CandidatePair, StunProtocol
from aiortc import RTCDtlsTransport, RTCIceGatherer, RTCIceTransport, RTCRtpReceiver
from aiortc.rtp import is_rtcp
from cryptography.x509 import Certificate

COMPONENT = 1
"ICE's component number for RTP, which carries RTCP and the data channel too."

CandidateSource = Callable[[int, list[str], int], Awaitable[list[Candidate]]]
"Gathers candidates: component number, addresses of the machine, timeout in seconds."


def connection_of(ice: RTCIceTransport | RTCIceGatherer) -> Connection:
    """Returns the aioice connection of a transport or a gatherer."""
    return ice._connection


def selected_pair(connection: Connection) -> CandidatePair | None:
    """Returns the candidate pair over which audio goes; None while there is none."""
    return connection._nominated.get(COMPONENT)


def selected_pairs(connection: Connection) -> dict[int, CandidatePair]:
    """Returns the chosen pair of each component. It is aioice's own dictionary, so it changes with
    the connection."""
    return connection._nominated


def is_closing(connection: Connection) -> bool:
    """True if ICE has ended or is ending."""
    return connection._closing


def transport_policy(connection: Connection) -> TransportPolicy:
    """Returns whether the connection uses all candidates or only relayed ones."""
    return connection._transport_policy


def add_socket(connection: Connection, protocol: StunProtocol) -> None:
    """Gives aioice a socket that we opened. aioice closes it with the connection."""
    connection._protocols.append(protocol)


def replace_gathering(connection: Connection, gather: CandidateSource) -> None:
    """Makes the connection get its candidates from `gather`."""
    setattr(connection, "get_component_candidates", gather)  # noqa: B010  a method, to mypy


def replace_consent_check(connection: Connection, check: Callable[[], Awaitable[None]]) -> None:
    """Makes the connection run `check`, once it is connected, in the place of its own consent
    check."""
    setattr(connection, "query_consent", check)  # noqa: B010


async def close_within_consent_check(connection: Connection) -> None:
    """Closes the connection from the task of its consent check, which `close` would cancel."""
    connection._query_consent_task = None
    await connection.close()


def replace_close(protocol: StunProtocol, close: Callable[[], Awaitable[None]]) -> None:
    """Makes aioice call `close` when it closes this socket."""
    setattr(protocol, "close", close)  # noqa: B010


def move_transport(ice: RTCIceTransport, old: Connection, new: Connection) -> None:
    """Moves all that aiortc has of `old` to `new`, so that `old` can be closed and DTLS above ICE
    notices nothing."""
    # DTLS reads from the old queue, and would take its end for the end of the call.
    while not new._queue.empty():
        old._queue.put_nowait(new._queue.get_nowait())
    new._queue, old._queue = old._queue, asyncio.Queue()
    # `rtp.py` keeps this dictionary, and looks up there over which pair audio is sent.
    old._nominated |= new._nominated
    new._nominated, old._nominated = old._nominated, {}
    # aiortc waits on this object for the end of ICE.
    new._event_waiter, old._event_waiter = old._event_waiter, None
    ice._connection = ice.iceGatherer._connection = new
    ice._recv, ice._send = new.recv, new.send


def peer_certificate(dtls: RTCDtlsTransport) -> Certificate | None:
    """Returns the certificate that the other side showed, also if it was refused; None if there is
    none."""
    connection: Any = dtls._ssl
    certificate: Certificate | None = connection and connection.get_peer_certificate(
        as_cryptography=True
    )
    return certificate


def lose_packets(receiver: RTCRtpReceiver, is_lost: Callable[[], bool]) -> None:
    """Drops the arriving RTP packets for which `is_lost` returns True, before any other code sees
    them. For benchmarks and tests."""
    connection = connection_of(receiver.transport.transport)
    received: Callable[[bytes, int], None] = connection.data_received

    def lossy(data: bytes, component: int) -> None:
        is_rtp = 128 <= data[0] < 192 and not is_rtcp(data)  # first byte: RFC 7983
        if not is_rtp or not is_lost():
            received(data, component)

    setattr(connection, "data_received", lossy)  # noqa: B010
