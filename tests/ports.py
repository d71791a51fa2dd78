"""A port for a program that must be told one, held until it listens there."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """Linux lets two sockets with SO_REUSEADDR have a port as long as one of them listens; whoever
    asks for any free port, or connects from one, gets another."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        yield port
