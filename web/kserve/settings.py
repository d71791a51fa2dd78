"""Settings of KServe's doors."""

from dataclasses import dataclass

from core.ip_addresses import IpNetwork, is_among, peer_address


@dataclass(frozen=True, slots=True)
class KserveSettings:
    """Access and limits."""

    networks: tuple[IpNetwork, ...] = ()
    "Networks whose clients need no key: few clients of this protocol can send one."
    trusts_this_machine: bool = True
    """False: requests from this machine may come through a proxy, so their address says nothing
    about the client."""
    max_message_bytes: int = 128 * 2**20
    "Largest request in bytes."

    def admits(self, peer: str | None) -> bool:
        """Returns True if a client at this address needs no key."""
        address = peer_address(peer)
        if address is None or (address.is_loopback and not self.trusts_this_machine):
            return False
        return is_among(address, self.networks)
