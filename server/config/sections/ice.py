"""Section `[ice]`: the network path between callers and the server."""

from typing import Annotated

from msgspec import Meta

from core.errors import ConfigError
from media.webrtc.ice.settings import (
    CREDENTIAL_TTL_S,
    GATHER_TIMEOUT_S,
    IceServer,
    IceSettings,
    IceUrl,
    PortRange,
)
from media.webrtc.rtp.call_path import check_path
from server.config.types import Section
from server.net.addresses import address_of
from server.runtime.clock import SystemClock


class IceServerConfig(Section, frozen=True):
    """Settings of one STUN or TURN server, with one kind of credential or none."""

    urls: Annotated[
        tuple[str, ...],
        Meta(
            min_length=1,
            description=(
                "Addresses of the server: stun:HOST:PORT, turn:HOST:PORT?transport=udp, turns:..."
            ),
        ),
    ]
    username: Annotated[str, Meta(description="Name of a user of the TURN server.")] = ""
    password: Annotated[str, Meta(description="Password of that user.")] = ""
    shared_secret: Annotated[
        str,
        Meta(
            description=(
                "coturn's static-auth-secret. Each session gets its own credentials from it, valid"
                " for some hours."
            )
        ),
    ] = ""

    def __post_init__(self) -> None:
        if self.relays and not (self.shared_secret or (self.username and self.password)):
            raise ConfigError("ice.servers: TURN needs shared_secret, or username and password")
        if self.shared_secret and (self.username or self.password):
            raise ConfigError(
                "ice.servers: set either shared_secret, or username and password, not both"
            )

    @property
    def relays(self) -> bool:
        """True if the server is a TURN server."""
        return any(IceUrl.parse(url).scheme != "stun" for url in self.urls)

    def as_server(self) -> IceServer:
        """Returns the server in a peer's form."""
        return IceServer(
            self.urls,
            self.username or None,
            self.password or None,
            self.shared_secret or None,
        )


class IceConfig(Section, frozen=True):
    """Settings for callers over WebRTC. With the defaults they reach the server only in the local
    network."""

    servers: Annotated[
        tuple[IceServerConfig, ...],
        Meta(
            title="list of tables with urls, and username and password or shared_secret",
            description="STUN and TURN servers. This server uses them and names them to clients.",
        ),
    ] = ()
    ports: Annotated[
        str,
        Meta(
            pattern=r"^(\d{4,5}-\d{4,5})?$",
            title="a range like 40000-40999",
            description=(
                "Range of UDP ports for calls, for a firewall rule. Each call uses one port on"
                " every address of the machine. Empty: any free port."
            ),
        ),
    ] = ""
    public_address: Annotated[
        str,
        Meta(
            description=(
                "Public address of this server, if a router or a cloud forwards the ports to it."
            )
        ),
    ] = ""
    relay_only: Annotated[
        bool,
        Meta(
            description=(
                "Use only addresses on the TURN server, and never tell clients this machine's"
                " addresses."
            )
        ),
    ] = False
    gather_timeout_s: Annotated[
        float,
        Meta(
            ge=0.1,
            le=10,
            description=(
                "Seconds that a call waits for a STUN or TURN server that does not answer."
            ),
        ),
    ] = GATHER_TIMEOUT_S
    credential_ttl_s: Annotated[
        int,
        Meta(
            ge=60,
            le=7 * 86_400,
            description="Seconds for which credentials made from a shared_secret are valid.",
        ),
    ] = CREDENTIAL_TTL_S
    fast_path: Annotated[
        bool,
        Meta(
            description=(
                "Pass the audio of calls around aiortc's queues, which needs its exact release."
                " false: use aiortc's public interface only; a call then costs about three times"
                " the processor time."
            )
        ),
    ] = True

    def __post_init__(self) -> None:
        self._ports()
        if self.public_address and address_of(self.public_address) is None:
            raise ConfigError(f"ice.public_address: {self.public_address!r} is not an IP address")

    def as_settings(self) -> IceSettings:
        """Returns the settings in a peer's form, with this machine's clock. Raises ConfigError."""
        if self.relay_only and not any(server.relays for server in self.servers):
            raise ConfigError("config.ice.relay_only: needs a TURN server in ice.servers")
        settings = IceSettings(
            servers=tuple(server.as_server() for server in self.servers),
            ports=self._ports(),
            public_address=self.public_address,
            is_relay_only=self.relay_only,
            gather_timeout_s=self.gather_timeout_s,
            credential_ttl_s=self.credential_ttl_s,
            wants_fast_path=self.fast_path,
            wall_s=lambda: SystemClock().wall().timestamp(),
        )
        check_path(settings)
        return settings

    def _ports(self) -> PortRange | None:
        """Parses the port range; None if any free port may be used. Raises ConfigError."""
        if not self.ports:
            return None
        first, _, last = self.ports.partition("-")
        try:
            return PortRange(int(first), int(last))
        except ConfigError as error:
            raise ConfigError(f"ice.ports: {error}") from error
