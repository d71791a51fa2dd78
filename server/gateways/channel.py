"""Sockets between the parent and its gateways: messages, and the connections that it hands over.

The parent opens one pair of sockets for control messages, and one for each port that the gateway
serves. Both keep the boundaries of messages (SOCK_SEQPACKET). Only these two processes have them.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

MAX_MESSAGE_BYTES = 65_536
"Largest control message. A table of 64 gateways has some 6 kB."

MAX_FILES = 32
"""Most file descriptors with one message: a gateway has at most two sockets for each of ten ports,
and the two files that come with each `GatewayPlace`."""

GatewayState = Literal["starting", "ready", "retiring", "draining"]
"""State of a gateway. retiring: it keeps its calls and takes no new ones, until the calls have
ended. draining: it is about to end, and lets turns finish."""

SocketName = tuple[str | int, ...]
"Address of a socket, as `getsockname` returns it."


class Port(Struct, frozen=True):
    """One listening socket of the parent."""

    setting: str
    "Setting that names the port, such as `willow.http_port`."
    family: int
    name: SocketName


class GatewayPlace(Struct, frozen=True, tag=True):
    """First message to a gateway. The sockets of `ports` come with it, in their order, then the
    socket for copies of conversations and the file of the places."""

    number: int
    "Number of this process; each gateway that is started gets the next one."
    slot: int
    "Place of the gateway, from 0. A gateway that takes over from another has its slot."
    count: int
    "Number of slots."
    folder: str
    "Folder of the sockets between gateways."
    token: str
    "Secret with which gateways know each other's requests."
    ports: tuple[Port, ...]
    row: int
    "Row of this gateway in the file of the places."
    machine: int = 0
    "Number of this machine among several; 0: it is alone."

    def __repr__(self) -> str:
        return f"GatewayPlace(number={self.number}, slot={self.slot})"


class GatewayRow(Struct, frozen=True):
    """State of one gateway in the table that the parent sends to all."""

    number: int
    slot: int
    state: GatewayState
    is_home: bool
    load: int
    "Sessions, and WebSockets that it passes on."


class Table(Struct, frozen=True, tag=True):
    """All gateways that run. The parent sends it when it changes."""

    gateways: tuple[GatewayRow, ...]
    is_started: bool
    "True once every slot has been ready."


class Drain(Struct, frozen=True, tag=True):
    """Tells a gateway to drain and end."""


class SettingsChanged(Struct, frozen=True, tag=True):
    """Tells that the home gateway has saved other settings: to the parent, and to the others."""


ToGateway = GatewayPlace | Table | Drain | SettingsChanged


class Report(Struct, frozen=True, tag=True):
    """Tells the parent how a gateway is. It sends the first one when its ports are open."""

    is_loaded: bool
    "True while every model is loaded."
    load: int


class RestartRequest(Struct, frozen=True, tag=True):
    """Tells the parent that somebody asked for a restart of the whole server."""


ToParent = Report | RestartRequest | SettingsChanged


class ControlSocket:
    """One end of the control messages."""

    def __init__(self, own_end: socket.socket) -> None:
        self._socket = own_end

    def send(self, message: ToGateway | ToParent, files: Sequence[int] = ()) -> None:
        """Sends a message with open files. Raises OSError: the other end is gone or stuck."""
        socket.send_fds(self._socket, [msgspec.json.encode(message)], list(files))

    def receive(self, kind: Any) -> tuple[Any, list[int]]:
        """Returns the next message and the files that came with it; (None, []) if the other end
        was closed. Raises BlockingIOError if there is none."""
        data, files, *_ = socket.recv_fds(self._socket, MAX_MESSAGE_BYTES, MAX_FILES)
        return (msgspec.json.decode(data, type=kind) if data else None), files

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class HandedListener(socket.socket):
    """Stands for a listening socket of the parent: `accept` returns connections that the parent has
    handed over."""

    def __init__(self, own_end: int, port: Port) -> None:
        super().__init__(fileno=own_end)
        self.setblocking(False)
        self._port = port

    @property
    def family(self) -> socket.AddressFamily:
        """Address family of the parent's socket."""
        return socket.AddressFamily(self._port.family)

    def getsockname(self) -> SocketName:
        """Returns the address of the parent's socket."""
        return self._port.name

    def accept(self) -> tuple[socket.socket, Any]:
        """Returns a connection and its client's address. Raises BlockingIOError if none waits, and
        OSError if the client has left."""
        data, files, flags, _ = socket.recv_fds(self, 1, 1)
        if files:
            connection = socket.socket(fileno=files[0])
            try:
                return connection, connection.getpeername()
            except OSError:
                connection.close()
                raise
        if data or flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        # The parent has ended. A socket that is at its end would wake the loop for ever.
        asyncio.get_running_loop().remove_reader(self.fileno())
        raise BlockingIOError


def hand_over(connection: socket.socket, gateway_end: socket.socket) -> bool:
    """Hands a connection to a gateway. Returns False if that gateway takes none now."""
    try:
        socket.send_fds(gateway_end, [b"c"], [connection.fileno()])
    except OSError:
        return False
    return True


def listeners_of(ports: Sequence[Port], files: Sequence[int]) -> Mapping[str, list[HandedListener]]:
    """Returns the listeners of a gateway by their setting."""
    found: dict[str, list[HandedListener]] = {}
    for port, file in zip(ports, files, strict=True):
        found.setdefault(port.setting, []).append(HandedListener(file, port))
    return found
