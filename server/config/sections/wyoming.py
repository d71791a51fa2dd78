"""Section `[wyoming]`: the Wyoming door."""

from typing import Annotated

from msgspec import Meta

from core.net.ip_addresses import IpNetwork
from devices.wyoming.settings import WyomingSettings
from server.config.types import Section
from server.net.allowlist import listening_host, networks_of

USUAL_PORT = 10300
"Port on which Home Assistant expects a Wyoming server."


class WyomingConfig(Section, frozen=True):
    """Settings of Home Assistant's voice protocol. It has no key, so access depends on the
    network."""

    port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description=(
                "Port of the Wyoming server. If another program uses 10300, the server logs it and"
                " starts without Wyoming; any other port that is in use is a fatal error. 0: none."
            ),
        ),
    ] = USUAL_PORT
    networks: Annotated[
        tuple[str, ...],
        Meta(
            title="list of lan or networks like 192.168.1.0/24",
            description=(
                "Networks that may connect, in addition to this machine. lan means every private"
                " network. If empty, the port listens only on a loopback address."
            ),
        ),
    ] = ()
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Maximum number of simultaneous connections; further ones are refused.",
        ),
    ] = 64
    announce: Annotated[
        bool,
        Meta(
            description=(
                "Whether to announce the server in the local network by mDNS, so that Home"
                " Assistant discovers it. Only if networks is not empty."
            )
        ),
    ] = True

    def __post_init__(self) -> None:
        self._networks()

    @property
    def host(self) -> str:
        """Address to listen on: all of this machine if other machines may connect."""
        return listening_host(self.networks, self._networks())

    def as_settings(self, *, trusts_this_machine: bool = True) -> WyomingSettings:
        """Returns the settings in the door's form."""
        return WyomingSettings(
            networks=self._networks(),
            max_connections=self.max_connections,
            trusts_this_machine=trusts_this_machine,
        )

    def _networks(self) -> tuple[IpNetwork, ...]:
        """Parses the networks. Raises ConfigError."""
        return networks_of(self.networks, "wyoming.networks")
