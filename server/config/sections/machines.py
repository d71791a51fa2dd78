"""Section `[machines]`: servers of several machines that work together."""

from ipaddress import ip_address
from typing import Annotated

from msgspec import Meta

from core.errors import ConfigError
from server.config.types import Section


class MachinesConfig(Section, frozen=True):
    """Settings of this server among those of other machines. They share one PostgreSQL
    (devices.database)."""

    host: Annotated[
        str,
        Meta(
            title="a private address like '10.0.0.5'",
            description=(
                "Private address of this machine on which the servers of other machines reach this"
                " one. Empty: it works alone."
            ),
        ),
    ] = ""
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port for the other servers. 0: any free port.")
    ] = 8090
    url: Annotated[
        str,
        Meta(
            pattern=r"^(https?://[^/\s]+)?$",
            title="a URL like 'https://a.example.org:8080'",
            description=(
                "URL at which clients reach this server, for redirects. Empty: machines.host with"
                " the main port."
            ),
        ),
    ] = ""
    key_file: Annotated[
        str,
        Meta(
            description=(
                "File with the key that all machines share, 32 or more characters. Empty:"
                " machines-key in state_dir."
            )
        ),
    ] = ""

    @property
    def is_on(self) -> bool:
        """True if other machines may be there."""
        return bool(self.host)

    def __post_init__(self) -> None:
        if not self.host:
            return
        try:
            address = ip_address(self.host)
        except ValueError:
            raise ConfigError(
                f"machines.host: {self.host!r} is no IP address; write a private one of this"
                " machine, like 10.0.0.5"
            ) from None
        if address.is_unspecified or not (address.is_private or address.is_loopback):
            raise ConfigError(
                f"machines.host: {self.host} is not a private address (10.0.0.0/8, 172.16.0.0/12,"
                " 192.168.0.0/16, fc00::/7, loopback); the servers speak with each other on"
                " private networks only"
            )
