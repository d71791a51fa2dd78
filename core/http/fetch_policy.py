"""Which URLs that somebody else wrote may be fetched, and which addresses never.

Whoever may name a URL to a machine in the home network could make it knock at any door there
(SSRF), its own and the router's included. So the host is one that the operator named, and its
address none that means the fetching machine itself, its link or a cloud's metadata, whatever the
name is called. A name is resolved once more when it is fetched: one that is named in the
configuration is trusted not to change its address in between. Whoever fetches goes there directly:
a proxy would resolve the name in a network of its own.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

MAX_URL_CHARS = 1024
"Of a message to a device, which has 4000 bytes."

RESOLVE_TIMEOUT_S = 3.0

PORTS = {"http": 80, "https": 443}

METADATA = frozenset(
    map(
        ip_address,
        ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)
"Of cloud providers: what a machine may ask there is not for others. The first is link-local, too."

NAT64 = ip_network("64:ff9b::/96")
"RFC 6052: IPv4 addresses written as IPv6."

_URL = re.compile(r"[!-\[\]-~]+")
"Printable ASCII but the backslash, which some readers of URLs take for a slash."

IpAddress = IPv4Address | IPv6Address
HostResolver = Callable[[str, int], Awaitable[Sequence[IpAddress]]]
"Host and port -> addresses; raises OSError."


class UrlNotAllowed(ValueError):
    """Why a URL is not fetched, as the rest of a sentence about it."""


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """Where a URL leads."""

    origin: str
    "`http://192.168.1.2:8502`, as it was written, in lower case."
    host: str
    port: int


def parse_fetch_target(url: str) -> FetchTarget:
    """Raises Unfetchable."""
    if len(url) > MAX_URL_CHARS or not _URL.fullmatch(url):
        raise UrlNotAllowed(f"it is not a URL of at most {MAX_URL_CHARS} printable characters")
    split = _split(url)
    if split.scheme not in PORTS:
        raise UrlNotAllowed("only http and https are fetched")
    if not split.hostname or split.username is not None or split.password is not None:
        raise UrlNotAllowed("it has no host, or a user's name")
    origin = f"{split.scheme}://{split.netloc}".lower()
    return FetchTarget(origin, split.hostname, split.port or PORTS[split.scheme])


class HostAllowlist:
    """Names or addresses that the operator named, each with `:port` or for any port."""

    def __init__(self, hosts: Sequence[str] = (), resolve: HostResolver | None = None) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._resolve = resolve or resolve_host

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def has(self, target: FetchTarget) -> bool:
        return (
            target.host in self._hosts or f"{_bracketed(target.host)}:{target.port}" in self._hosts
        )

    async def check_address(self, target: FetchTarget) -> None:
        """Raises Unfetchable where a name leads to an address that no host may have."""
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                addresses = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError, TimeoutError):
            raise UrlNotAllowed("its host's address cannot be found") from None
        if not addresses or any(is_forbidden(address) for address in addresses):
            raise UrlNotAllowed("its host's address is loopback, link-local, metadata or no host's")


def is_forbidden(address: IpAddress) -> bool:
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


async def resolve_host(host: str, port: int) -> Sequence[IpAddress]:
    """By this machine's resolver, numbers in any notation included. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(str(address[0]).partition("%")[0]) for *_, address in found]


def _inner(address: IpAddress) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for."""
    if not isinstance(address, IPv6Address):
        return None
    teredo = address.teredo
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


def _split(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        raise UrlNotAllowed("it cannot be read") from None
    return split


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
