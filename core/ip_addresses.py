"""IP addresses of peers, and whether they are in given networks."""

from collections.abc import Iterable
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
