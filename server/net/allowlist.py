"""Parses the setting `networks` of several sections: the networks whose clients need no key."""

import socket
from collections.abc import Sequence
from ipaddress import ip_network

from core.errors import ConfigError
from core.net.ip_addresses import IpNetwork

LAN = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")
"Private addresses (RFC 1918, RFC 4193) and link-local addresses."

LOOPBACK = ("127.0.0.0/8", "::1/128")
"Addresses of this machine itself."


def networks_of(names: Sequence[str], setting: str) -> tuple[IpNetwork, ...]:
    """Parses networks such as `192.168.1.0/24`. `lan` stands for all private networks, and this
    machine is always added. Raises ConfigError, which names the `setting`."""
    texts = [text for name in names for text in (LAN if name == "lan" else (name,))]
    try:
        return tuple(ip_network(text) for text in (*LOOPBACK, *texts))
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}") from error


def listening_host(names: Sequence[str], networks: Sequence[IpNetwork]) -> str:
    """Returns the address to listen on: that of this machine alone if `names` is empty, else all
    addresses. `names`: the setting. `networks`: what it means."""
    if not names:
        return "127.0.0.1"
    has_ipv6 = any(network.version == 6 and not network.is_loopback for network in networks)
    return "::" if has_ipv6 and socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
