"""Checks of IP addresses, for doors whose clients have no key: only devices in named networks may
connect."""

from dataclasses import dataclass

from core.net.ip_addresses import IpNetwork, is_among, peer_address


@dataclass(frozen=True, slots=True)
class KeylessPageSettings:
    """Pages of other sites that need no key: WIS's browser client cannot send one."""

    origins: frozenset[str] = frozenset()
    "Origins of these pages, as in the Origin header."
    networks: tuple[IpNetwork, ...] = ()
    "Networks of the browsers that show these pages."
    trusts_this_machine: bool = True
    """False: requests from this machine may come through a proxy, so their address says nothing
    about the client."""

    def admits(self, origin: str, peer: str | None) -> bool:
        """Returns True if a page with this origin may be served without a key.

        The address counts too, because any program can send any origin.
        """
        address = peer_address(peer)
        if address is None or (address.is_loopback and not self.trusts_this_machine):
            return False
        return origin in self.origins and is_among(address, self.networks)
