"""A port for a server that must be told one, held while it is ours."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import EngineError


@contextmanager
def reserve_port(host: str, port: int, engine: str) -> Iterator[int]:
    """The port itself, or a free one for 0.

    Linux lets two sockets with SO_REUSEADDR have a port as long as one of them listens, and gives
    it to nobody who asks for any. So the server has the same one after each restart. Raises
    EngineError when somebody listens there.
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
