"""Who may come to doors whose clients have no key: machines of the networks that are named."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

IpNetwork = IPv4Network | IPv6Network
IpAddress = IPv4Address | IPv6Address


def address_of(peer: str | None) -> IpAddress | None:
    """As a socket says it: without the zone, an IPv4 address as such. None: gone already."""
    try:
        address = ip_address((peer or "").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_among(address: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    return any(address in one for one in networks)


@dataclass(frozen=True, slots=True)
class KeylessPageSettings:
    """Pages of other sites that need no key: WIS's browser client cannot send one."""

    origins: frozenset[str] = frozenset()
    networks: tuple[IpNetwork, ...] = ()
    "Where their browsers may be."
    trusts_this_machine: bool = True
    "False: what comes from this machine may be a forwarder of bytes, behind which anybody is."

    def admits(self, origin: str, peer: str | None) -> bool:
        """Any program can say an origin, so that its address counts, too."""
        address = address_of(peer)
        if address is None or (address.is_loopback and not self.trusts_this_machine):
            return False
        return origin in self.origins and is_among(address, self.networks)
