"""A server of our own in a process of its own, for measurements that bring none."""

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.client.http import Address, parse_address
from core.errors import EarshotError

START_TIMEOUT_S = 60
"Loading a large Whisper from a cold disk takes half of it."

STOP_TIMEOUT_S = 30

KEPT_LINES = 40
"Of what the server said last: enough for a traceback."

LOOK_AGAIN_S = 0.01

READY = re.compile(r"ready in [0-9.]+ s at (\S+)\n")


class ServerStartError(EarshotError):
    """The server ended, or was not ready in time."""

    code = "not_started"


@dataclass(frozen=True, slots=True)
class OwnServer:
    address: Address
    pid: int
    start_s: float
    "From the start of the process to its word that it is ready."


@asynccontextmanager
async def own_server(
    arguments: Sequence[str] = (), *, wyoming_port: int = 0
) -> AsyncIterator[OwnServer]:
    """`earshot serve` on a free port while the body runs. Raises NotStarted.

    Its settings are the defaults: no file and no variable of this machine counts, but for those
    in `arguments`. `wyoming_port`: 0 for none.
    """
    # Port 0: one found free beforehand may be another program's by the time it is bound.
    command = ["-m", "server", "serve", "--port", "0", "--log-level", "info"]
    async with own_program([*command, *arguments], wyoming_port=wyoming_port) as server:
        yield server


@asynccontextmanager
async def given_or_own(url: str | None, key: str | None) -> AsyncIterator[Address]:
    """The server that somebody names, or one of our own while the body runs."""
    if url is not None:
        yield parse_address(url, key)
        return
    async with own_server() as server:
        yield server.address


@asynccontextmanager
async def own_program(command: Sequence[str], *, wyoming_port: int = 0) -> AsyncIterator[OwnServer]:
    """Python with these arguments, which says as `earshot serve` does that it is ready."""
    with TemporaryDirectory(prefix="earshot-bench-") as folder:
        environ = {key: text for key, text in os.environ.items() if not key.startswith("EARSHOT_")}
        environ["EARSHOT_PATHS__STATE_DIR"] = folder
        environ["EARSHOT_WYOMING__PORT"] = str(wyoming_port)  # not the user's own
        log = Path(folder) / "log"
        began = time.monotonic()
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                env=environ,
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
            )
        try:
            url = await _until_ready(process, log)
            yield OwnServer(Address(url), process.pid, time.monotonic() - began)
        finally:
            await _stop(process)


async def _until_ready(process: Process, log: Path) -> str:
    """Its URL. Raises NotStarted with what it said last."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        is_last_look = process.returncode is not None or time.monotonic() > deadline
        said = await asyncio.to_thread(log.read_text, errors="replace")
        if ready := READY.search(said):
            return ready[1]
        if is_last_look:
            last = "\n".join(said.splitlines()[-KEPT_LINES:])
            raise ServerStartError(f"the server did not become ready; it said last: {last}")
        await asyncio.sleep(LOOK_AGAIN_S)


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
