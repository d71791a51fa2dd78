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
"""Time in ms after which a client that acknowledges none of the data sent to it counts as gone.
Devices that play a stream acknowledge some of it every few seconds."""


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
        for listener in sockets:
            listener.close()
        raise
    return sockets


def _resolve(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Returns (family, address) of every address of a host. Raises ConfigError."""
    try:
        address_infos = socket.getaddrinfo(
            host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"config.server.host: {host!r}: {error}") from error
    return list(
        dict.fromkeys((family, str(address[0])) for family, _, _, _, address in address_infos)
    )


def _listen(family: socket.AddressFamily, address: str, port: int, setting: str) -> socket.socket:
    """Opens one listening socket. Raises AddressInUse or ConfigError."""
    endpoint = f"{url_host(address)}:{port}"
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `::` must accept IPv4 too; any other IPv6 address accepts only IPv6.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # only on Linux; accepted connections inherit it
            listener.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_TIMEOUT_MS
            )
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(
                f"{endpoint} is in use by another program; choose another with {setting}"
            ) from error
        if error.errno == errno.EACCES:
            raise ConfigError(
                f"{endpoint}: ports below 1024 need additional permissions"
            ) from error
        raise ConfigError(f"config.server.host: {endpoint}: {error.strerror or error}") from error
    return listener


def urls(host: str, sockets: Sequence[socket.socket], *, is_tls: bool) -> list[str]:
    """Lists the URLs of the server for a browser, the one for this machine itself first."""
    scheme = "https" if is_tls else "http"
    port = sockets[0].getsockname()[1]
    hosts = [host]
    if is_unspecified(host):
        families = {listener.family for listener in sockets}
        ip_versions = {4, 6} if socket.AF_INET6 in families else {4}  # `::` takes both kinds
        own_addresses = (
            str(address) for address in lan_addresses() if address.version in ip_versions
        )
        hosts = ["127.0.0.1", *own_addresses]
    return [f"{scheme}://{url_host(name)}:{port}" for name in hosts]


def is_local_only(sockets: Sequence[socket.socket]) -> bool:
    """Returns True if only this machine can reach the sockets."""
    return all(is_loopback(str(listener.getsockname()[0])) for listener in sockets)


def raise_file_limit() -> int:
    """Raises the limit of open files to what the system allows: each connection is one file.
    Returns the new limit."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit != hard_limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
        except (ValueError, OSError):  # macOS reports "unlimited" but accepts less
            return soft_limit
    return hard_limit
