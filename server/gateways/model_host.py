"""The model host of several gateways: its process, and its supervision by the parent (ADR 110)."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

from core.tasks import Backoff
from server.config import Config
from server.runtime.clock import SystemClock
from server.runtime.logs import set_up
from server.runtime.metrics import PrometheusMetrics
from serving.model_host.host import BACKLOG, ModelHost

logger = logging.getLogger(__name__)

HEARTBEAT_S = 2.0
"Interval at which the host tells the parent that its event loop runs, in seconds."

SILENCE_LIMIT_S = 30.0
"""Silence in seconds after which the host counts as hung and is killed. Its start is part of it: a
busy machine needs some seconds for the imports."""

BACKOFF_S = (0.05, 0.2, 1.0, 5.0)
"Seconds before the next start of the host after the first, second, ... failure in a row."

STABLE_AFTER_S = 30.0
"A host that lived this many seconds resets the count of failures."

EXIT_GRACE_S = 10.0
"Time in seconds that the host has for its end once no gateway is left. Then it is killed."


def model_socket(folder: Path) -> Path:
    """Returns the path of the host's socket. `folder`: of the sockets between gateways."""
    return folder / "models.sock"


@contextmanager
def _private_listener(path: Path) -> Iterator[socket.socket]:
    """Opens the host's socket, for this user alone. Connections wait in its queue while there is no
    host."""
    with socket.socket(socket.AF_UNIX) as listening:
        mask = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(mask)
        listening.listen(BACKLOG)
        yield listening


async def supervise_model_host(folder: Path) -> None:
    """Keeps the model host alive until it is cancelled, after the gateways have ended. `folder`: of
    the sockets between gateways."""
    backoff = Backoff(BACKOFF_S, STABLE_AFTER_S)
    with _private_listener(model_socket(folder)) as listening:
        while True:
            started_s = monotonic()
            status = await _run_host(listening)
            wait_s = backoff.fail(monotonic() - started_s)
            logger.error(
                "! the model host ended with status %d; another one starts in %.2f s",
                status,
                wait_s,
            )
            await asyncio.sleep(wait_s)


async def _run_host(listening: socket.socket) -> int:
    """Runs one host from its start to its end. Returns its exit status."""
    own_end, other_end = socket.socketpair()
    with own_end:
        own_end.setblocking(False)
        with other_end:
            files = (listening.fileno(), other_end.fileno())
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *sys.orig_argv[1:],
                "--as-model-host",
                *map(str, files),
                pass_fds=files,
                start_new_session=True,  # Ctrl-C reaches only the parent
            )
        try:
            await _hear_heartbeats(own_end)
        except TimeoutError:
            logger.error("! the model host is silent for %.0f s: it is killed", SILENCE_LIMIT_S)
            process.kill()
        finally:
            own_end.close()
            await _ended_or_killed(process)
    return await process.wait()


async def _hear_heartbeats(own_end: socket.socket) -> None:
    """Returns when the host has ended. Raises TimeoutError if it hangs."""
    loop, data = asyncio.get_running_loop(), b"."
    with suppress(ConnectionError):
        while data:
            async with asyncio.timeout(SILENCE_LIMIT_S):
                data = await loop.sock_recv(own_end, 64)


async def _ended_or_killed(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(EXIT_GRACE_S):
            await process.wait()
    except TimeoutError:
        logger.error("! the model host does not end: it is killed")
    finally:
        if process.returncode is None:
            process.kill()


def run_model_host(config: Config, listening_file: int, control_file: int) -> None:
    """Runs the model host in this process until the parent and all gateways have ended.
    `listening_file` and `control_file`: file descriptors of its sockets."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # gateways that drain still need their models
    set_up(config.log, secrets=[config.server.api_key])
    with (
        socket.socket(fileno=listening_file) as listening,
        socket.socket(fileno=control_file) as control,
    ):
        asyncio.run(_serve(listening, control))


async def _serve(listening: socket.socket, control: socket.socket) -> None:
    metrics = PrometheusMetrics()
    host = ModelHost(SystemClock(), metrics, lambda: metrics.exposition().decode())
    is_ending = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(_beat(control, is_ending))
        await host.serve(listening, is_ending)
        beating.cancel()


async def _beat(control: socket.socket, is_ending: asyncio.Event) -> None:
    """Tells the parent that the event loop runs, until the parent closes its end."""
    loop = asyncio.get_running_loop()
    control.setblocking(False)
    with suppress(OSError):
        while True:
            await loop.sock_sendall(control, b".")
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    if not await loop.sock_recv(control, 1):
                        break
    is_ending.set()
