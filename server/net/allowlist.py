"""Networks whose clients need no key: the setting `networks` of several sections."""

import socket
from collections.abc import Sequence
from ipaddress import ip_network

from core.errors import ConfigError
from core.ip_addresses import IpNetwork

LAN = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")
"Private addresses (RFC 1918, RFC 4193) and link-local addresses."

LOOPBACK = ("127.0.0.0/8", "::1/128")
"Addresses of this machine itself."


def networks_of(names: Sequence[str], setting: str) -> tuple[IpNetwork, ...]:
    """Parses the named networks; `lan` stands for all private ones, and this machine is always in.
    Raises ConfigError, which names the `setting`."""
    named = [one for name in names for one in (LAN if name == "lan" else (name,))]
    try:
        return tuple(ip_network(one) for one in (*LOOPBACK, *named))
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}") from error


def listening_host(names: Sequence[str], networks: Sequence[IpNetwork]) -> str:
    """Returns the address to listen on: this machine only, or all if other machines may connect."""
    if not names:
        return "127.0.0.1"
    has_6 = any(one.version == 6 and not one.is_loopback for one in networks)
    return "::" if has_6 and socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
