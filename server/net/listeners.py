"""Sockets. They are bound before models load, so that a taken port is known at once."""

import errno
import resource
import socket
from collections.abc import Sequence

from core.errors import ConfigError, EarshotError
from server.net.addresses import is_loopback, is_unspecified, lan_addresses, url_host

BACKLOG = 65_535
"""Connections that wait to be accepted: more than any system allows, and each takes its own limit
(`net.core.somaxconn`). One that finds no room tries again a second later."""

UNTAKEN_TIMEOUT_MS = 120_000
"""A client that takes nothing of what it was sent for so long is gone. Devices that play what they
are sent take some every few seconds."""


class AddressInUse(EarshotError):
    """Another program listens there."""

    code = "address_in_use"


def bind(host: str, port: int, *, setting: str = "--port") -> list[socket.socket]:
    """Listening sockets for every address `host` means. Port 0 takes one free port for all.

    Raises AddressInUse, which names the `setting` that chooses the port, or ConfigError when the
    address is not one of ours.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _resolve(host):
            sockets.append(_listen(family, address, port, setting))
            port = port or sockets[0].getsockname()[1]
    except BaseException:
        for opened in sockets:
            opened.close()
        raise
    return sockets


def _resolve(host: str) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"config.server.host: {host!r}: {error}") from error
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _listen(family: socket.AddressFamily, address: str, port: int, setting: str) -> socket.socket:
    where = f"{url_host(address)}:{port}"
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `::` means every address of both kinds; anything else is what it says.
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; its accepted connections inherit it
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_TIMEOUT_MS)
        opened.bind((address, port))
        opened.listen(BACKLOG)
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(
                f"{where} is in use by another program; choose another with {setting}"
            ) from error
        if error.errno == errno.EACCES:
            raise ConfigError(f"{where}: ports below 1024 need more rights") from error
        raise ConfigError(f"config.server.host: {where}: {error.strerror or error}") from error
    return opened


def urls(host: str, sockets: Sequence[socket.socket], *, is_tls: bool) -> list[str]:
    """Where a browser finds the server, this machine's own address first."""
    scheme = "https" if is_tls else "http"
    port = sockets[0].getsockname()[1]
    hosts = [host]
    if is_unspecified(host):
        families = {opened.family for opened in sockets}
        listens = {4, 6} if socket.AF_INET6 in families else {4}  # `::` takes both kinds
        own = (str(address) for address in lan_addresses() if address.version in listens)
        hosts = ["127.0.0.1", *own]
    return [f"{scheme}://{url_host(name)}:{port}" for name in hosts]


def is_local_only(sockets: Sequence[socket.socket]) -> bool:
    """Whether only this machine can reach the sockets."""
    return all(is_loopback(str(opened.getsockname()[0])) for opened in sockets)


def raise_file_limit() -> int:
    """As many open files as the system lets this process have: each connection is one.

    Returns how many those are.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS says "unlimited", and takes less
            return soft
    return hard
