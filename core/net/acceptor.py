"""Accepts TCP connections, with a limit per address and a log line when no file descriptor is left.

asyncio's own servers do neither, and change the backlog of a listening socket. Those of uvloop log
nothing when file descriptors run out.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from ipaddress import IPv4Address, IPv6Network

from core.net.ip_addresses import IpAddress, IpNetwork, is_among, peer_address
from core.tasks import single_error

logger = logging.getLogger(__name__)

MAX_PER_STEP = 64
"Connections accepted in one step of the event loop, some 2 ms of work, before other tasks run."

FILES_PAUSE_S = 1.0
"""Wait until the next attempt when no file descriptor is left. Connections stay in the backlog
meanwhile."""

LOG_EVERY_S = 60.0
"Least time between two log lines about the same problem, so that a flood does not fill the log."

GREETING_TIMEOUT_S = 10.0
"Limit for the first byte of a connection that is to be encrypted, and again for its TLS handshake."

TLS_CLOSE_TIMEOUT_S = 2.0
"""Limit for the client's part of closing an encrypted connection. Without it the file descriptor is
held for 30 s."""

IPV6_PREFIX = 64
"""Bits that the addresses of one IPv6 network share. A provider gives a house at least one such
network, with more addresses than can be counted one by one."""

TLS_HANDSHAKE = b"\x16"
"First byte of every TLS connection; no HTTP request begins with it."

_NO_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

OnConnectionLost = Callable[[], None]
"Must be called when the connection is over."


class _RateLimitedWarning:
    """Logs a warning at most once in LOG_EVERY_S."""

    def __init__(self) -> None:
        self._logged_at = -LOG_EVERY_S

    def log(self, line: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            logger.warning("! %s", line)


class AddressLimit:
    """Limits the connections that each address may hold, over all listeners that share this object.
    IPv6 addresses of the internet count per network."""

    def __init__(self, max_connections: int, is_exempt: Callable[[IpAddress], bool]) -> None:
        """`max_connections`: per address. `is_exempt`: True for addresses without a limit: this
        machine, and proxies, whose one address stands for many clients."""
        self._max, self._is_exempt = max_connections, is_exempt
        self._open: Counter[IpAddress | IpNetwork] = Counter()
        self._warning = _RateLimitedWarning()

    def take(self, host: str) -> OnConnectionLost | None:
        """Counts one more connection of an address. Returns what to call when it is over, or None
        if the address holds as many as it may."""
        address = peer_address(host)
        if address is None or self._is_exempt(address):
            return lambda: None
        source = _source_of(address)
        if self._open[source] >= self._max:
            self._warning.log(
                f"{source} has {self._max} connections, the limit; further ones are closed at once"
                " (server.max_connections_per_address, server.trusted_proxies)"
            )
            return None
        self._open[source] += 1
        counted = [source]

        def release() -> None:
            if counted:  # may be called twice: by the protocol, and by a handshake that failed
                self._open[counted.pop()] -= 1
                if not self._open[source]:
                    del self._open[source]

        return release


NO_LIMIT = AddressLimit(0, lambda _: True)
"No limit, for listeners of tests and benchmarks."

ProtocolFactory = Callable[[OnConnectionLost], asyncio.Protocol]
"Makes the protocol of one connection. The protocol calls the argument when the connection is over."


@asynccontextmanager
async def open_acceptors(
    sockets: Sequence[socket.socket],
    protocols: ProtocolFactory,
    *,
    limit: AddressLimit = NO_LIMIT,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[None]:
    """Accepts connections from listening sockets while the context is open, then closes the
    sockets.

    With `tls`, a client that does not begin with TLS is accepted without it, so that its protocol
    can tell it the right address.
    """
    with single_error():
        async with asyncio.TaskGroup() as tasks:
            with ExitStack() as stack:
                for listening in sockets:
                    acceptor = _SocketAcceptor(listening, protocols, limit, tls, tasks)
                    stack.callback(acceptor.close)
                    acceptor.listen()
                yield


ServeStream = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter], Coroutine[object, object, None]
]
"Serves one connection. It must not raise: an error would end all others."


async def serve_streams(
    sockets: Sequence[socket.socket],
    serve: ServeStream,
    *,
    max_buffer_bytes: int,
    limit: AddressLimit = NO_LIMIT,
) -> None:
    """Serves connections, each in a task of its own, until it is cancelled. `sockets`: bound and
    listening; they are closed at the end. `max_buffer_bytes`: what is read ahead, and the longest
    line."""
    is_over = False
    async with asyncio.TaskGroup() as tasks:

        def on_connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if is_over:  # accepted just before the socket was closed
                writer.transport.abort()
                return
            tasks.create_task(serve(reader, writer))

        def protocol(on_lost: OnConnectionLost) -> asyncio.Protocol:
            return _StreamProtocol(on_connected, on_lost, max_buffer_bytes)

        async with open_acceptors(sockets, protocol, limit=limit):
            try:
                await asyncio.Event().wait()
            finally:
                is_over = True


class _StreamProtocol(asyncio.StreamReaderProtocol):
    """Passes the bytes of one connection to its reader."""

    def __init__(
        self,
        on_connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None],
        on_lost: OnConnectionLost,
        max_buffer_bytes: int,
    ) -> None:
        super().__init__(asyncio.StreamReader(limit=max_buffer_bytes), on_connected)
        self._on_lost = on_lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()
        super().connection_lost(exc)


class _SocketAcceptor:
    """Accepts the connections of one listening socket."""

    def __init__(
        self,
        listening: socket.socket,
        protocols: ProtocolFactory,
        limit: AddressLimit,
        tls: ssl.SSLContext | None,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._listening, self._protocols, self._limit = listening, protocols, limit
        self._tls, self._tasks = tls, tasks
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._warning = _RateLimitedWarning()

    def listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        for task in self._opening:
            task.cancel()

    def _accept(self) -> None:
        """Accepts the waiting connections. Pauses when no file descriptor is left."""
        for _ in range(MAX_PER_STEP):
            try:
                connection, peer = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._wait_for_files(error)
                    return
                continue  # that client left before it was accepted
            connection.setblocking(False)
            on_lost = self._limit.take(str(peer[0]))
            if on_lost is None:
                connection.close()
                continue
            task = self._tasks.create_task(self._open(connection, on_lost))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _wait_for_files(self, error: OSError) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._pause = self._loop.call_later(FILES_PAUSE_S, self.listen)
        self._warning.log(
            f"no connection can be accepted: {error.strerror}. They wait. Allow this process more"
            " open files (`ulimit -n`, systemd's LimitNOFILE, docker's --ulimit nofile), or fewer"
            " connections per address (server.max_connections_per_address).",
        )

    async def _open(self, connection: socket.socket, on_lost: OnConnectionLost) -> None:
        """Connects an accepted socket to its protocol, after the TLS handshake if there is one."""
        is_open = False
        try:
            tls = self._tls
            if tls is not None:
                async with asyncio.timeout(GREETING_TIMEOUT_S):
                    if await self._first_byte(connection) != TLS_HANDSHAKE:
                        tls = None
            await self._loop.connect_accepted_socket(
                lambda: self._protocols(on_lost),
                connection,
                ssl=tls,
                ssl_handshake_timeout=GREETING_TIMEOUT_S if tls else None,
                ssl_shutdown_timeout=TLS_CLOSE_TIMEOUT_S if tls else None,
            )
            is_open = True
        except OSError as error:  # includes TLS errors: the client left, or speaks another protocol
            logger.debug("a connection was not opened: %s", error)
        except Exception:  # a bug in one connection must not end the listener and all others
            logger.exception("a connection was not opened")
        finally:
            if not is_open:
                connection.close()
                on_lost()

    async def _first_byte(self, connection: socket.socket) -> bytes:
        """Returns the first byte without consuming it; empty if the client left."""
        is_there = asyncio.Event()
        self._loop.add_reader(connection.fileno(), is_there.set)
        try:
            await is_there.wait()
        finally:
            self._loop.remove_reader(connection.fileno())
        return connection.recv(len(TLS_HANDSHAKE), socket.MSG_PEEK)


def exempt_addresses(networks: Iterable[IpNetwork]) -> Callable[[IpAddress], bool]:
    """Returns a check that is True for this machine's own addresses and for those of the
    networks."""
    listed = tuple(networks)
    return lambda address: address.is_loopback or is_among(address, listed)


_SHARED = (IPv6Network("fe80::/10"), IPv6Network("fc00::/7"))
"""Link-local and private networks of IPv6. All machines of a house are in one, so each address
counts by itself."""


def _source_of(address: IpAddress) -> IpAddress | IpNetwork:
    """Returns the key under which an address is counted. The holder of one address of a public IPv6
    /64 holds all of it, so that network counts as one."""
    if isinstance(address, IPv4Address) or is_among(address, _SHARED):
        return address
    return IPv6Network((address, IPV6_PREFIX), strict=False)
