"""Settings of ICE: STUN and TURN servers, our ports, and credentials for one session.

Clients get the same servers: they may be behind a NAT just like us.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from core.conversation.ids import new_id
from core.errors import ConfigError

if TYPE_CHECKING:
    from aiortc import RTCConfiguration

CREDENTIAL_TTL_S = 6 * 3600
"""Lifetime of the credentials that are made from a shared secret. A relayed call cannot last
longer, because refreshing a relayed address needs valid credentials."""

GATHER_TIMEOUT_S = 3.0
"""Longest time for gathering. Every call's answer is delayed by it while a STUN or TURN server is
down. A distant server answers in half a second."""

_PORTS = {"stun": 3478, "turn": 3478, "turns": 5349}
"Default ports by scheme."
_URL = re.compile(
    r"(?P<scheme>stun|turns?):(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
    r"(?::(?P<port>\d{1,5}))?(?:\?transport=(?P<transport>udp|tcp))?"
)


@dataclass(frozen=True, slots=True)
class IceUrl:
    """Address of a server: `stun:host:port`, `turn:host:port?transport=udp`, `turns:host:port` (RFC
    7064, 7065)."""

    scheme: Literal["stun", "turn", "turns"]
    host: str
    port: int
    transport: Literal["udp", "tcp"]

    @classmethod
    def parse(cls, url: str) -> "IceUrl":
        """Parses a URL. Raises ConfigError."""
        match = _URL.fullmatch(url)
        scheme = match["scheme"] if match else None
        if match is None or (scheme == "stun" and match["transport"]):
            raise ConfigError(
                f"not an ICE server: {url[:100]!r}; allowed are stun:HOST:PORT,"
                " turn:HOST:PORT?transport=udp or tcp, and turns:HOST:PORT"
            )
        if scheme == "turns" and match["transport"] == "udp":
            raise ConfigError(f"{url[:100]!r}: TURN over DTLS is not supported; turns is over TCP")
        port = int(match["port"] or _PORTS[match["scheme"]])
        if not 0 < port < 65536:
            raise ConfigError(f"{url[:100]!r}: there is no port {port}")
        transport = match["transport"] or ("tcp" if scheme == "turns" else "udp")
        return cls(match["scheme"], match["host"].strip("[]"), port, transport)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class IceServer:
    """One STUN or TURN server. Its URLs are tried in this order."""

    urls: tuple[str, ...]
    "URLs in the form that `IceUrl` parses."
    username: str | None = None
    "Fixed user name for TURN."
    credential: str | None = field(default=None, repr=False)
    "Fixed password for TURN."
    shared_secret: str | None = field(default=None, repr=False)
    "coturn's `static-auth-secret`, from which the credentials of each session are made."

    def minted(self, name: str, expires_s: int) -> "IceServer":
        """Returns the server with credentials for one session (draft-uberti-behave-turn-rest-00,
        section 2.2). `expires_s`: when they expire, in seconds since 1970."""
        if self.shared_secret is None:
            return self
        username = f"{expires_s}:{name}"
        mac = hmac.digest(self.shared_secret.encode(), username.encode(), hashlib.sha1)
        credential = base64.b64encode(mac).decode()
        return replace(self, username=username, credential=credential, shared_secret=None)


@dataclass(frozen=True, slots=True)
class PortRange:
    """Range of UDP ports for our own candidates, both ends included. Raises ConfigError for a bad
    range."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 1024 <= self.first <= self.last <= 65535:
            raise ConfigError(
                f"ports {self.first}-{self.last}: a range within 1024-65535 is needed"
            )


def _no_clock() -> float:
    raise ConfigError("a shared_secret needs a clock: IceSettings.wall_s")


@dataclass(frozen=True, slots=True)
class IceSettings:
    """Settings of ICE for all peers."""

    servers: tuple[IceServer, ...] = ()
    """STUN and TURN servers. None by default: host candidates only, so that it works offline and at
    once, and contacts no server."""
    ports: PortRange | None = None
    """Ports of our candidates. None: any port that the system gives. Each call takes one on every
    address of the machine."""
    public_address: str = ""
    """Address at which a 1:1 NAT (of a cloud, or a router's forwarding) makes us reachable, at the
    same ports."""
    is_relay_only: bool = False
    "True: only relayed addresses are used, so that no client sees our own."
    gather_timeout_s: float = GATHER_TIMEOUT_S
    "Longest time for gathering, in seconds."
    credential_ttl_s: int = CREDENTIAL_TTL_S
    "Lifetime of the credentials that are made from a shared secret, in seconds."
    wants_fast_path: bool = True
    """False: calls use aiortc's public interface only, which costs more
    (`media.webrtc.rtp.call_path`). True: only if the installed libraries lack a private name."""
    wall_s: Callable[[], float] = _no_clock
    "Returns seconds since 1970, as the TURN server counts them."

    def minted(self, name: str | None = None) -> tuple[IceServer, ...]:
        """Returns the servers with credentials for one session. `name`: part of the user
        name, which the TURN server logs."""
        if all(server.shared_secret is None for server in self.servers):
            return self.servers
        expires_s = int(self.wall_s()) + self.credential_ttl_s
        label = name or new_id("ice")
        return tuple(server.minted(label, expires_s) for server in self.servers)

    def configuration(self, *, names_servers: bool = False) -> "RTCConfiguration":
        """Returns aiortc's configuration. `names_servers`: aiortc asks the first STUN and the first
        TURN server itself; otherwise `media.webrtc.ice.gatherer` asks all of them."""
        # Imported here: every command reads the settings, and aiortc takes a tenth of a second.
        from aiortc import (
            RTCBundlePolicy,
            RTCConfiguration,
            RTCIceServer,
            RTCIceTransportPolicy,
        )

        policy = RTCIceTransportPolicy
        servers = [
            RTCIceServer(_without_ipv6(server.urls), server.username, server.credential)
            for server in (self.minted() if names_servers else ())
        ]
        return RTCConfiguration(
            iceServers=servers,
            bundlePolicy=RTCBundlePolicy.MAX_BUNDLE,
            iceTransportPolicy=policy.RELAY if self.is_relay_only else policy.ALL,
        )


def _without_ipv6(urls: tuple[str, ...]) -> list[str]:
    """Returns the URLs that aiortc can parse: those without a literal IPv6 address."""
    return [url for url in urls if "[" not in url]
