"""Addresses and names of this machine, and the parsing of Host headers."""

import re
import socket
from ipaddress import ip_address

from core.net.ip_addresses import IpAddress

MAX_PORT = 65_535

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(:(?P<port>[0-9]{1,5}))?")
"Host header: name or address, IPv6 in brackets, with an optional port."


def address_of(name: str) -> IpAddress | None:
    """Parses an IP address; returns None for a name."""
    try:
        return ip_address(name.strip("[]").partition("%")[0])
    except ValueError:
        return None


def is_loopback(name: str) -> bool:
    """Returns True if a host name or address can only mean this machine."""
    address = address_of(name)
    if address is not None:
        return address.is_loopback
    return name == "localhost" or name.endswith(".localhost")


def is_unspecified(name: str) -> bool:
    """Returns True for 0.0.0.0 and ::, which mean every address of this machine."""
    address = address_of(name)
    return address is not None and address.is_unspecified


def host_name(header: str) -> str | None:
    """Returns the name or address of a Host header, lower case, without port; None if malformed."""
    match = _HOST.fullmatch(header.strip().lower())
    if match is None or int(match["port"] or 0) > MAX_PORT:
        return None
    return match["name"].strip("[]").rstrip(".")


def lan_addresses() -> tuple[IpAddress, ...]:
    """Lists the addresses under which other machines may reach this one, IPv4 first."""
    import psutil  # imported here: server/net/port_check.py runs before psutil is installed

    own_addresses = {
        address
        for addresses in psutil.net_if_addrs().values()
        for entry in addresses
        if entry.family in (socket.AF_INET, socket.AF_INET6)
        and (address := address_of(entry.address)) is not None
        and not (address.is_loopback or address.is_link_local)
    }
    return tuple(sorted(own_addresses, key=lambda address: (address.version, int(address))))


def own_names() -> tuple[str, ...]:
    """Returns this machine's names as a user on the same network may type them."""
    name = socket.gethostname().lower()
    short = name.partition(".")[0]
    return tuple(dict.fromkeys((name, short, f"{short}.local")))


def url_host(host: str) -> str:
    """Returns a host as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
