"""Binds listening sockets. This is done before models load, so that a port in use is reported at
once."""

import errno
import resource
import socket
from collections.abc import Sequence

from core.errors import ConfigError, EarshotError
from server.net.addresses import is_loopback, is_unspecified, lan_addresses, url_host

BACKLOG = 65_535
"""Length of the queue of connections that wait to be accepted. It is above any system's limit, so
each system applies its own (`net.core.somaxconn`). A client that finds the queue full tries again a
second later."""

UNACKNOWLEDGED_TIMEOUT_MS = 120_000
"""Time after which a client that takes none of the data sent to it counts as gone. Devices that
play a stream take some of it every few seconds."""


class AddressInUse(EarshotError):
    """Raised when another program listens on the address."""

    code = "address_in_use"


def bind(host: str, port: int, *, setting: str = "--port") -> list[socket.socket]:
    """Binds listening sockets on every address that `host` means. Port 0 takes one free port for
    all. Raises AddressInUse, which names the `setting` that chooses the port, or ConfigError if the
    address is not one of this machine's."""
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
    """Opens one listening socket. Raises AddressInUse or ConfigError."""
    where = f"{url_host(address)}:{port}"
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `::` must accept IPv4 too; any other IPv6 address accepts only IPv6.
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # only on Linux; accepted connections inherit it
            opened.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_TIMEOUT_MS
            )
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
            raise ConfigError(f"{where}: ports below 1024 need additional permissions") from error
        raise ConfigError(f"config.server.host: {where}: {error.strerror or error}") from error
    return opened


def urls(host: str, sockets: Sequence[socket.socket], *, is_tls: bool) -> list[str]:
    """Lists the URLs of the server for a browser, the one for this machine itself first."""
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
    """Returns True if only this machine can reach the sockets."""
    return all(is_loopback(str(opened.getsockname()[0])) for opened in sockets)


def raise_file_limit() -> int:
    """Raises the limit of open files to what the system allows: each connection is one file.
    Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS reports "unlimited" but accepts less
            return soft
    return hard
