"""How a peer may be reached: STUN and TURN servers, our ports, and credentials for one session.

The servers are told to clients too: their own address may be as hidden as ours.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from core.errors import ConfigError
from core.ids import new_id

if TYPE_CHECKING:
    from aiortc import RTCConfiguration

CREDENTIAL_TTL_S = 6 * 3600
"Refreshing a relayed address needs valid credentials, so no relayed call lasts longer."

GATHER_TIMEOUT_S = 3.0
"Of every call's answer, if a STUN or TURN server is away; a far one answers in half a second."

_PORTS = {"stun": 3478, "turn": 3478, "turns": 5349}
_URL = re.compile(
    r"(?P<scheme>stun|turns?):(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
    r"(?::(?P<port>\d{1,5}))?(?:\?transport=(?P<transport>udp|tcp))?"
)


@dataclass(frozen=True, slots=True)
class IceUrl:
    """`stun:host:port`, `turn:host:port?transport=udp`, `turns:host:port` (RFC 7064, 7065)."""

    scheme: Literal["stun", "turn", "turns"]
    host: str
    port: int
    transport: Literal["udp", "tcp"]

    @classmethod
    def parse(cls, url: str) -> "IceUrl":
        """Raises ConfigError."""
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
    """One server; its URLs are ways to it, tried in this order."""

    urls: tuple[str, ...]
    username: str | None = None
    credential: str | None = field(default=None, repr=False)
    shared_secret: str | None = field(default=None, repr=False)
    "coturn's `static-auth-secret`: each session gets a username and credential made of it."

    def minted(self, name: str, expires_s: int) -> "IceServer":
        """With credentials for one session (draft-uberti-behave-turn-rest-00, section 2.2)."""
        if self.shared_secret is None:
            return self
        username = f"{expires_s}:{name}"
        mac = hmac.digest(self.shared_secret.encode(), username.encode(), hashlib.sha1)
        credential = base64.b64encode(mac).decode()
        return replace(self, username=username, credential=credential, shared_secret=None)


@dataclass(frozen=True, slots=True)
class PortRange:
    """UDP ports of our own candidates, both ends included."""

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
    servers: tuple[IceServer, ...] = ()
    "None by default: host candidates only, so that it works offline, at once, and asks nobody."
    ports: PortRange | None = None
    "None: any port the system gives. Each call takes one on every address of the machine."
    public_address: str = ""
    "Where a 1:1 NAT (a cloud's, a router's forwarding) makes us reachable, at the same ports."
    is_relay_only: bool = False
    "Use relayed addresses only: nobody is shown ours."
    gather_timeout_s: float = GATHER_TIMEOUT_S
    credential_ttl_s: int = CREDENTIAL_TTL_S
    wall_s: Callable[[], float] = _no_clock
    "Seconds since 1970, as the TURN server counts them."

    def minted(self, name: str | None = None) -> tuple[IceServer, ...]:
        """The servers with credentials for one session. `name` shows in the TURN server's log."""
        if all(server.shared_secret is None for server in self.servers):
            return self.servers
        expires_s = int(self.wall_s()) + self.credential_ttl_s
        label = name or new_id("ice")
        return tuple(server.minted(label, expires_s) for server in self.servers)

    def configuration(self) -> "RTCConfiguration":
        """For aiortc, without the servers: `media.webrtc.ice.gatherer` asks them."""
        # Settings are read by every command; aiortc takes a tenth of a second.
        from aiortc import RTCBundlePolicy, RTCConfiguration, RTCIceTransportPolicy

        policy = RTCIceTransportPolicy
        return RTCConfiguration(
            iceServers=[],
            bundlePolicy=RTCBundlePolicy.MAX_BUNDLE,
            iceTransportPolicy=policy.RELAY if self.is_relay_only else policy.ALL,
        )
