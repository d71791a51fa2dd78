"""IP addresses of peers, and whether they are in given networks."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network


def peer_address(peer: str | None) -> IpAddress | None:
    """The address that a socket tells, without its zone; one that maps an IPv4 address as that one.
    None: the peer is gone already, or has no IP address."""
    try:
        address = ip_address((peer or "").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_among(address: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    """Whether one of the networks holds the address."""
    return any(address in one for one in networks)
