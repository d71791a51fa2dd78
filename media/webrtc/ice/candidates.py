"""ICE candidates in descriptions and one by one (trickle ICE): reads those of the other side, adds
our public address."""

import ipaddress
from contextlib import suppress
from dataclasses import replace

from aiortc import RTCIceCandidate
from aiortc.sdp import candidate_from_sdp, candidate_to_sdp

from core.errors import OverloadedError, RequestError

MAX_CANDIDATE_CHARS = 512
"Longest candidate. Those of browsers have about 150 characters."

MAX_CANDIDATES = 64
"""Most candidates of one description. A machine has a dozen. Each one is an address that we send
checks to, and aioice sorts all pairs again for each."""

RETRY_AFTER_S = 5
"Seconds after which a client that we could not give an address should try again."

_PREFIX = "candidate:"

_REFLEXIVE_PREFERENCE = 100 << 24
"Type preference of a server-reflexive candidate in its priority (RFC 8445 section 5.1.2.2)."


def read_candidate(line: str) -> RTCIceCandidate | None:
    """Converts a line such as `candidate:1 1 udp 2122260223 192.0.2.1 51712 typ host` (RFC 8839,
    5.1).

    Returns None for a candidate that cannot be used: over TCP, for RTCP alone (we bundle), or with
    a `.local` name, by which browsers hide addresses. The peer's own checks then tell us its
    address. Raises RequestError for a line that is no candidate.
    """
    if len(line) > MAX_CANDIDATE_CHARS or not line.startswith(_PREFIX):
        raise _bad(line)
    try:
        candidate = candidate_from_sdp(line.removeprefix(_PREFIX))
    except (ValueError, AssertionError, IndexError) as error:
        raise _bad(line) from error
    if candidate.component != 1 or candidate.protocol.lower() != "udp" or _is_name(candidate.ip):
        return None
    try:
        ipaddress.ip_address(candidate.ip)
    except ValueError as error:
        raise _bad(line) from error
    if not 0 < candidate.port < 65536:
        raise _bad(line)
    return candidate


def candidates_in(sdp: str) -> list[RTCIceCandidate]:
    """Returns the first usable candidates of a description, each once, because bundled sections
    repeat them."""
    found: dict[tuple[str, int], RTCIceCandidate] = {}
    for line in sdp.splitlines():
        if line.startswith(f"a={_PREFIX}") and len(found) < MAX_CANDIDATES:
            with suppress(RequestError):
                candidate = read_candidate(line.removeprefix("a="))
                if candidate is not None:
                    found.setdefault((candidate.ip, candidate.port), candidate)
    return list(found.values())


def no_candidates() -> OverloadedError:
    """Returns the error for a call for which we have no address."""
    return OverloadedError(
        "no UDP port is free, and no TURN server answered",
        retry_after_s=RETRY_AFTER_S,
        code="no_ice_candidates",
    )


def public_candidate_lines(sdp: str, public_address: str) -> str:
    """Returns our description with a second line for each host candidate: the public address of a
    1:1 NAT, at the same port."""
    version = ipaddress.ip_address(public_address).version
    lines: list[str] = []
    for line in sdp.splitlines():
        lines.append(line)
        if not line.startswith(f"a={_PREFIX}"):
            continue
        host = candidate_from_sdp(line.removeprefix(f"a={_PREFIX}"))
        if host.type == "host" and ipaddress.ip_address(host.ip).version == version:
            public = replace(
                host,
                foundation=host.foundation[::-1],  # must differ from those of host candidates
                ip=public_address,
                type="srflx",
                priority=_REFLEXIVE_PREFERENCE | (host.priority & 0xFFFFFF),
                relatedAddress=host.ip,
                relatedPort=host.port,
            )
            lines.append(f"a={_PREFIX}{candidate_to_sdp(public)}")
    return "\r\n".join(lines) + "\r\n"


def _is_name(address: str) -> bool:
    return address.lower().endswith(".local")


def _bad(line: str) -> RequestError:
    return RequestError(f"not a candidate: {line[:100]!r}", code="invalid_candidate")
