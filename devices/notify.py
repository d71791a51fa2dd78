"""Where a device may be sent for the sound of a notification.

The device fetches the URL itself, from inside the home network: whoever may write it could make the
device knock at any door there (SSRF), its own and the router's included. So it leads to this
server or to a host that the operator named, and to no address that means the fetching machine
itself, its link or a cloud's metadata, whatever the name is called. The device resolves the name
once more when it fetches: a host that is named in the configuration is trusted not to change its
address in between.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from core.errors import RequestError
from devices.networks import Address

MAX_URL_CHARS = 1024
"Of a message to a device, which has 4000 bytes."

RESOLVE_TIMEOUT_S = 3.0

PORTS = {"http": 80, "https": 443}

METADATA = frozenset({ip_address("169.254.169.254"), ip_address("fd00:ec2::254")})
"Of cloud providers; the first is link-local, too."

NAT64 = ip_network("64:ff9b::/96")
"RFC 6052: IPv4 addresses written as IPv6."

_URL = re.compile(r"[!-\[\]-~]+")
"Printable ASCII but the backslash, which some readers of URLs take for a slash."

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
"Host and port -> addresses; raises OSError."


class AudioUrls:
    """`hosts`: names or addresses, each with `:port` or for any port."""

    def __init__(self, hosts: Sequence[str] = (), resolve: Resolve | None = None) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._resolve = resolve or resolved

    async def check(self, url: str, own: str) -> None:
        """`own`: this server as the device calls it, `http://192.168.1.2:8502`. Raises RequestError
        audio_url_refused, which says why."""
        split = _split(url)
        host, port = split.hostname or "", split.port or PORTS[split.scheme]
        if f"{split.scheme}://{split.netloc}".lower() == own.lower():
            return
        if host not in self._hosts and f"{_bracketed(host)}:{port}" not in self._hosts:
            raise _refused("its host is neither this server nor in willow.audio_hosts")
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                addresses = await self._resolve(host, port)
        except (OSError, UnicodeError, TimeoutError):
            raise _refused("its host's address cannot be found") from None
        if not addresses or any(is_forbidden(address) for address in addresses):
            raise _refused("its host's address is loopback, link-local, metadata or no host's")


def is_forbidden(address: Address) -> bool:
    """Whether it means the machine that asks, its link, many machines or none."""
    inner = _inner(address)
    if inner is not None:
        return is_forbidden(inner)
    return (
        address in METADATA
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )


def _inner(address: Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for."""
    if not isinstance(address, IPv6Address):
        return None
    teredo = address.teredo
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


async def resolved(host: str, port: int) -> Sequence[Address]:
    """By this machine's resolver, numbers in any notation included. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(str(address[0]).partition("%")[0]) for *_, address in found]


def _split(url: str) -> SplitResult:
    if len(url) > MAX_URL_CHARS or not _URL.fullmatch(url):
        raise _refused(f"it is not a URL of at most {MAX_URL_CHARS} printable characters")
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        raise _refused("it cannot be read") from None
    if split.scheme not in PORTS:
        raise _refused("only http and https are fetched")
    if not split.hostname or split.username is not None or split.password is not None:
        raise _refused("it has no host, or a user's name")
    return split


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _refused(why: str) -> RequestError:
    return RequestError(f"audio_url: {why}", code="audio_url_refused", param="audio_url")
