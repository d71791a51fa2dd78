"""A server of our own in a process of its own, for measurements that bring none."""

import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from aiohttp import ClientConnectionError, ClientSession

from bench.address import Address
from core.errors import EarshotError

START_TIMEOUT_S = 60
"Loading a large Whisper from a cold disk takes half of it."

STOP_TIMEOUT_S = 30

LOOK_AGAIN_S = 0.01


class NotStarted(EarshotError):
    """`earshot serve` ended, or was not ready in time."""

    code = "not_started"


@dataclass(frozen=True, slots=True)
class OwnServer:
    address: Address
    pid: int
    start_s: float
    "From the start of the process to ready, by its /health."


@asynccontextmanager
async def own_server(arguments: Sequence[str] = ()) -> AsyncIterator[OwnServer]:
    """`earshot serve` on a free port while the body runs. Raises NotStarted.

    Its settings are the defaults: no file and no variable of this machine counts, but for those
    in `arguments`.
    """
    port = _free_port()
    with TemporaryDirectory(prefix="earshot-bench-") as folder:
        environ = {key: text for key, text in os.environ.items() if not key.startswith("EARSHOT_")}
        environ["EARSHOT_PATHS__STATE_DIR"] = folder
        command = ["-m", "server", "serve", "--port", str(port), "--log-level", "error"]
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, *arguments, env=environ, stdin=DEVNULL
        )
        try:
            address = Address(f"http://127.0.0.1:{port}")
            await _until_ready(process, address)
            yield OwnServer(address, process.pid, time.monotonic() - began)
        finally:
            await _stop(process)


async def _until_ready(process: Process, address: Address) -> None:
    async with ClientSession() as http:
        deadline = time.monotonic() + START_TIMEOUT_S
        while process.returncode is None and time.monotonic() < deadline:
            with suppress(ClientConnectionError):
                async with http.get(f"{address.url}/health") as response:
                    if response.ok:
                        return
            await asyncio.sleep(LOOK_AGAIN_S)
    raise NotStarted("earshot serve did not become ready; its last words are above")


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
