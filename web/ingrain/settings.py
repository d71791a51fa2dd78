"""Settings of Ingrain's door."""

from dataclasses import dataclass

from core.ip_addresses import IpNetwork, is_among, peer_address


@dataclass(frozen=True, slots=True)
class IngrainSettings:
    """Access and downloads."""

    networks: tuple[IpNetwork, ...] = ()
    "Networks whose clients need no key: Ingrain's clients cannot send one."
    trusts_this_machine: bool = True
    """False: requests from this machine may come through a proxy, so their address says nothing
    about the client."""
    has_downloads: bool = False
    "True: loading a model that is not in the models folder downloads it."

    def admits(self, peer: str | None) -> bool:
        """Returns True if a client at this address needs no key."""
        address = peer_address(peer)
        if address is None or (address.is_loopback and not self.trusts_this_machine):
            return False
        return is_among(address, self.networks)
