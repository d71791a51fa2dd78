"""Section `[ingrain]`: the doors for clients of an Ingrain server."""

from typing import Annotated

from msgspec import Meta

from core.net.ip_addresses import IpNetwork
from server.config.types import Section
from server.net.allowlist import listening_host, networks_of
from web.ingrain.settings import IngrainSettings


class IngrainConfig(Section, frozen=True):
    """Settings of Ingrain's HTTP API. Its clients send no key, so access depends on the network."""

    port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description=(
                "Port for inference, and for all requests of the oldest clients; Ingrain uses 8686."
                " 0: none."
            ),
        ),
    ] = 0
    model_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="Port for loading and listing models; Ingrain uses 8687. 0: none.",
        ),
    ] = 0
    networks: Annotated[
        tuple[str, ...],
        Meta(
            title="list of lan or networks like 192.168.1.0/24",
            description=(
                "Networks whose clients need no key, in addition to this machine. lan means every"
                " private network. If empty, both ports listen only on a loopback address."
            ),
        ),
    ] = ()
    downloads: Annotated[
        bool,
        Meta(
            description=(
                "Whether a client that loads a model that is not in models_dir makes the server"
                " download it, as Ingrain does."
            )
        ),
    ] = False

    def __post_init__(self) -> None:
        self._networks()

    @property
    def host(self) -> str:
        """Address to listen on: all of this machine if other machines may connect."""
        return listening_host(self.networks, self._networks())

    def as_settings(self, *, trusts_this_machine: bool) -> IngrainSettings:
        """Returns the settings in the door's form."""
        return IngrainSettings(self._networks(), trusts_this_machine, has_downloads=self.downloads)

    def _networks(self) -> tuple[IpNetwork, ...]:
        """Parses the networks. Raises ConfigError."""
        return networks_of(self.networks, "ingrain.networks")
