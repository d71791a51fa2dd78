"""IP addresses of peers, and whether they are in given networks."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network


def peer_address(peer: str | None) -> IpAddress | None:
    """Returns the address of a socket's other end, without its zone. An IPv6 address that maps an
    IPv4 address is returned as IPv4. None: the peer is gone already, or has no IP address."""
    try:
        address = ip_address((peer or "").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_among(address: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    """Returns whether one of the networks contains the address."""
    return any(address in network for network in networks)


@dataclass(frozen=True, slots=True)
class TrustedNetworks:
    """Networks whose clients need no key. Settings of doors whose clients cannot send one extend
    it."""

    networks: tuple[IpNetwork, ...] = ()
    trusts_this_machine: bool = True
    """False: requests from this machine may come through a proxy, so their address says nothing
    about the client."""

    def admits(self, peer: str | None) -> bool:
        """Returns True if a client at this address needs no key."""
        address = peer_address(peer)
        if address is None or (address.is_loopback and not self.trusts_this_machine):
            return False
        return is_among(address, self.networks)
