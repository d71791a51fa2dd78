"""Section `[kserve]`: the doors for clients of KServe's protocol, such as those of Triton."""

from typing import Annotated

from msgspec import Meta

from core.net.ip_addresses import IpNetwork
from server.config.types import Section
from server.net.allowlist import listening_host, networks_of
from web.kserve.settings import KserveSettings


class KserveConfig(Section, frozen=True):
    """Settings of KServe's protocol, version 2. The main port serves its HTTP paths, too, with the
    key. Most clients send none, so access to these ports depends on the network."""

    http_port: Annotated[
        int,
        Meta(ge=0, le=65535, description="Port for HTTP; Triton uses 8000. 0: none."),
    ] = 0
    grpc_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="Port for gRPC, which needs the extra kserve; Triton uses 8001. 0: none.",
        ),
    ] = 0
    metrics_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description=(
                "Port for /metrics with Triton's names (nv_inference_...); Triton uses 8002."
                " 0: none."
            ),
        ),
    ] = 0
    networks: Annotated[
        tuple[str, ...],
        Meta(
            title="list of lan or networks like 192.168.1.0/24",
            description=(
                "Networks whose clients need no key, in addition to this machine. lan means every"
                " private network. If empty, the ports listen only on a loopback address."
            ),
        ),
    ] = ()
    max_message_mb: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description=(
                "Largest request in megabytes (MiB). Half a minute of sound is 2 MB, and a request"
                " has at most 64 recordings."
            ),
        ),
    ] = 128

    def __post_init__(self) -> None:
        self._networks()

    @property
    def host(self) -> str:
        """Address to listen on: all of this machine if other machines may connect."""
        return listening_host(self.networks, self._networks())

    def as_settings(self, *, trusts_this_machine: bool) -> KserveSettings:
        """Returns the settings in the doors' form."""
        return KserveSettings(self._networks(), trusts_this_machine, self.max_message_mb * 2**20)

    def _networks(self) -> tuple[IpNetwork, ...]:
        """Parses the networks. Raises ConfigError."""
        return networks_of(self.networks, "kserve.networks")
