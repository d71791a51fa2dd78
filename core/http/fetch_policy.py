"""Decides which URLs from others may be fetched, and which addresses never.

A person who may give a URL to a machine in the home network could make it call any service there
(SSRF), including its own and the router's. So the host must be one that the operator named. And its
address must not mean the fetching machine itself, its link or a cloud's metadata service, whatever
the name is. The name is resolved once more for the fetch: a name in the configuration is trusted
not to change its address in between. The fetch must go there directly, because a proxy would
resolve the name in its own network.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from core.net.ip_addresses import IpAddress

MAX_URL_CHARS = 1024
"Longest URL. A message to a device, which contains it, has 4000 bytes."

RESOLVE_TIMEOUT_S = 3.0
"Longest time to resolve a name."

PORTS = {"http": 80, "https": 443}
"Default ports of the allowed schemes."

METADATA = frozenset(
    map(
        ip_address,
        ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)
"""Addresses of the metadata services of cloud providers, which must not be reachable for others.
The first one is link-local, too."""

NAT64 = ip_network("64:ff9b::/96")
"RFC 6052: network of IPv4 addresses that are written as IPv6."

_URL = re.compile(r"[!-\[\]-~]+")
"Printable ASCII except the backslash, which some URL parsers take for a slash."

HostResolver = Callable[[str, int], Awaitable[Sequence[IpAddress]]]
"Returns the addresses of a host and port; raises OSError."


class UrlNotAllowed(ValueError):
    """A URL must not be fetched. The message is the rest of a sentence about it."""


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """Host and port that a URL leads to."""

    origin: str
    "Scheme, host and port as in the URL, in lower case: `http://192.168.1.2:8502`."
    host: str
    port: int


def parse_fetch_target(url: str) -> FetchTarget:
    """Returns the target of a URL. Raises UrlNotAllowed."""
    if len(url) > MAX_URL_CHARS or not _URL.fullmatch(url):
        raise UrlNotAllowed(f"it is not a URL of at most {MAX_URL_CHARS} printable characters")
    split = _split(url)
    if split.scheme not in PORTS:
        raise UrlNotAllowed("only http and https are fetched")
    if not split.hostname or split.username is not None or split.password is not None:
        raise UrlNotAllowed("it must have a host and no user name")
    origin = f"{split.scheme}://{split.netloc}".lower()
    return FetchTarget(origin, split.hostname, split.port or PORTS[split.scheme])


class HostAllowlist:
    """Names or addresses that the operator allowed, each with `:port` or for any port."""

    def __init__(self, hosts: Sequence[str] = (), resolve: HostResolver | None = None) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._resolve = resolve or resolve_host

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def has(self, target: FetchTarget) -> bool:
        """Returns whether the operator allowed this host and port."""
        return (
            target.host in self._hosts or f"{_bracketed(target.host)}:{target.port}" in self._hosts
        )

    async def check_address(self, target: FetchTarget) -> None:
        """Resolves the host. Raises UrlNotAllowed when it has an address that must not be fetched,
        or none."""
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                addresses = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError, TimeoutError):
            raise UrlNotAllowed("the address of its host cannot be found") from None
        if not addresses or any(is_forbidden(address) for address in addresses):
            raise UrlNotAllowed(
                "the address of its host is a loopback, link-local or metadata address, or not"
                " that of a single host"
            )


def is_forbidden(address: IpAddress) -> bool:
    """Returns whether an address means the asking machine, its link, many machines or none."""
    embedded = _embedded_ipv4(address)
    if embedded is not None:
        return is_forbidden(embedded)
    return (
        address in METADATA
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )


async def resolve_host(host: str, port: int) -> Sequence[IpAddress]:
    """Returns the addresses of a host by this machine's resolver, numbers in any notation included.
    Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(str(address[0]).partition("%")[0]) for *_, address in found]


def _embedded_ipv4(address: IpAddress) -> IPv4Address | None:
    """Returns the IPv4 address that an IPv6 address stands for; None: it stands for none."""
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
