"""Section `[wyoming]`: the Wyoming door."""

from typing import Annotated

from msgspec import Meta

from core.ip_addresses import IpNetwork
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
                "Port of the Wyoming server. If another program has 10300, a line says so and there"
                " is none; any other that is taken is fatal. 0: none."
            ),
        ),
    ] = USUAL_PORT
    networks: Annotated[
        tuple[str, ...],
        Meta(
            title="list of lan or networks like 192.168.1.0/24",
            description=(
                "Who may connect, beside this machine; lan is every private network. While there"
                " is none, only a loopback address listens."
            ),
        ),
    ] = ()
    max_connections: Annotated[
        int, Meta(ge=1, le=10_000, description="Connections at once; the next one is refused.")
    ] = 64
    announce: Annotated[
        bool,
        Meta(
            description=(
                "Tell the local network by mDNS, so that Home Assistant finds it by itself, if"
                " networks are named."
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
