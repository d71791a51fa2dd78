"""Checks of IP addresses, for doors whose clients have no key: only devices in named networks may
connect."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

IpNetwork = IPv4Network | IPv6Network
IpAddress = IPv4Address | IPv6Address


def address_of(peer: str | None) -> IpAddress | None:
    """Parses the address of a socket, without zone; an IPv4 address in IPv6 form becomes IPv4.

    Returns None for a connection that is already closed.
    """
    try:
        address = ip_address((peer or "").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_among(address: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    """Returns True if the address is in one of the networks."""
    return any(address in one for one in networks)


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
        address = address_of(peer)
        if address is None or (address.is_loopback and not self.trusts_this_machine):
            return False
        return origin in self.origins and is_among(address, self.networks)
