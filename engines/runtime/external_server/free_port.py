"""Reserves a port for a server that must be given its port number."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import EngineError


@contextmanager
def reserve_port(host: str, port: int, engine: str) -> Iterator[int]:
    """Reserves a port while the body runs, and yields its number. `port`: 0 chooses a free one.

    The port stays bound here without listening. SO_REUSEADDR lets the server bind it too, as long
    as only one of the two sockets listens. Linux gives a bound port to no program that asks for any
    free one. So the server has the same port after each restart. Raises EngineError if another
    program already listens there.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((host, port))
        except OSError as exc:
            why = f"port {port} on {host}: {exc.strerror}"
            raise EngineError("llm", engine, why) from exc
        taken: int = held.getsockname()[1]
        yield taken
