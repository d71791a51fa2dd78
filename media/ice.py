"""How a peer may be reached."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiortc import RTCBundlePolicy, RTCConfiguration, RTCIceGatherer, RTCIceServer

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class IceServer:
    urls: tuple[str, ...]
    "stun:host:port or turn:host:port?transport=udp."
    username: str | None = None
    credential: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class IceSettings:
    servers: tuple[IceServer, ...] = ()
    "None by default: host candidates only, so that it works offline, at once, and asks nobody."

    def configuration(self) -> RTCConfiguration:
        return RTCConfiguration(
            iceServers=[
                RTCIceServer(
                    urls=list(server.urls), username=server.username, credential=server.credential
                )
                for server in self.servers
            ],
            bundlePolicy=RTCBundlePolicy.MAX_BUNDLE,
        )


def fall_back_to_loopback(gatherer: RTCIceGatherer) -> None:
    """Without a network, gather 127.0.0.1, which aioice leaves out: an offline laptop has no other.

    It wraps a method of aioice's connection object; without that method nothing changes.
    """
    connection = getattr(gatherer, "_connection", None)
    gather: Callable[..., Awaitable[Any]] | None = getattr(
        connection, "get_component_candidates", None
    )
    if connection is None or gather is None:
        return

    def with_loopback(component: int, addresses: list[str], timeout: int = 5) -> Awaitable[Any]:
        return gather(component, addresses or [LOOPBACK], timeout)

    connection.get_component_candidates = with_loopback
