"""A port for a program that needs a number, held until it listens there."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from media.webrtc.ice.settings import PortRange


@contextmanager
def reserved_port() -> Iterator[int]:
    """Holds a free port until the program listens. Linux lets two sockets with SO_REUSEADDR have a
    port as long as at most one of them listens, and gives other programs another free port."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        yield port


def free_ports(size: int) -> PortRange:
    """Returns a range of ports that were free a moment ago."""
    for first in range(40_000, 60_000, size):
        opened = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(size)]
        try:
            for step, one in enumerate(opened):
                one.bind(("127.0.0.1", first + step))
            return PortRange(first, first + size - 1)
        except OSError:
            continue
        finally:
            for one in opened:
                one.close()
    raise AssertionError("no free ports")
