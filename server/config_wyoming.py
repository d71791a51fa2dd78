"""Settings of the Wyoming door, `[wyoming]`."""

import socket
from ipaddress import ip_network
from typing import Annotated

from msgspec import Meta

from core.errors import ConfigError
from devices.wyoming.door import Network, WyomingSettings
from server.config_types import Section

USUAL_PORT = 10300
"Where Home Assistant expects it."

LAN = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")
"Private addresses (RFC 1918, 4193) and those of a single link."

LOOPBACK = ("127.0.0.0/8", "::1/128")


class WyomingConfig(Section, frozen=True):
    """Home Assistant's voice protocol, which has no key: networks are let in."""

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
        """The address to listen on: all of this machine's where others may connect."""
        if not self.networks:
            return "127.0.0.1"
        has_6 = any(one.version == 6 and not one.is_loopback for one in self._networks())
        return "::" if has_6 and socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104

    def as_settings(self) -> WyomingSettings:
        """The same as the door takes it."""
        return WyomingSettings(networks=self._networks(), max_connections=self.max_connections)

    def _networks(self) -> tuple[Network, ...]:
        """Raises ConfigError."""
        named = [one for name in self.networks for one in (LAN if name == "lan" else (name,))]
        try:
            return tuple(ip_network(one) for one in (*LOOPBACK, *named))
        except ValueError as error:
            raise ConfigError(f"wyoming.networks: {error}") from error
