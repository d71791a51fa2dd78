"""Runs an Earshot server in a process of its own, for measurements without `--url`."""

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from bench.client.http import Address, parse_address
from core.errors import EarshotError

START_TIMEOUT_S = 60
"Longest start by default: a large Whisper from a cold disk needs half of it."

STOP_TIMEOUT_S = 30
"Longest wait for the server to end."

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

KEPT_LINES = 40
"Number of last lines of its output in an error: enough for a traceback."

POLL_S = 0.01
"Interval of the checks whether the server is ready."

READY = re.compile(r"ready in [0-9.]+ s at (\S+)\n")
"Line that a server prints when it accepts connections."


class ServerStartError(EarshotError):
    """The server ended during its start, or was not ready in time."""

    code = "not_started"


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A running server."""

    address: Address
    pid: int
    start_s: float
    "Time from the start of the process to its message that it is ready."


@asynccontextmanager
async def own_server(
    arguments: Sequence[str] = (),
    *,
    wyoming_port: int = 0,
    start_timeout_s: float = START_TIMEOUT_S,
    environ: Mapping[str, str] = NO_VARIABLES,
) -> AsyncIterator[OwnServer]:
    """Runs `earshot serve` on a free port while the body runs. Raises ServerStartError.

    The server has default settings: it ignores files and environment variables of this machine.
    arguments: options of `earshot serve`. wyoming_port: port of the Wyoming door; 0: none. environ:
    further environment variables.
    """
    # Port 0: a port that is free now may be taken before the server binds it.
    command = ["-m", "server", "serve", "--port", "0", "--log-level", "info"]
    async with own_program(
        [*command, *arguments],
        wyoming_port=wyoming_port,
        start_timeout_s=start_timeout_s,
        environ=environ,
    ) as server:
        yield server


@asynccontextmanager
async def named_or_own_server(url: str | None, key: str | None) -> AsyncIterator[Address]:
    """Yields the address of the server at `url`, or of one that runs while the body runs.

    Raises RequestError for a malformed URL, ServerStartError.
    """
    if url is not None:
        yield parse_address(url, key)
        return
    async with own_server() as server:
        yield server.address


@asynccontextmanager
async def own_program(
    command: Sequence[str],
    *,
    wyoming_port: int = 0,
    start_timeout_s: float = START_TIMEOUT_S,
    environ: Mapping[str, str] = NO_VARIABLES,
) -> AsyncIterator[OwnServer]:
    """Runs Python with these arguments while the body runs. Raises ServerStartError.

    The program must print the same line as `earshot serve` when it is ready (see READY).
    """
    with TemporaryDirectory(prefix="earshot-bench-") as folder:
        own = {key: text for key, text in os.environ.items() if not key.startswith("EARSHOT_")}
        own |= environ
        own["EARSHOT_PATHS__STATE_DIR"] = folder
        # An own port: the one in the user's settings may be in use.
        own["EARSHOT_WYOMING__PORT"] = str(wyoming_port)
        log = Path(folder) / "log"
        began = time.monotonic()
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                env=own,
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
            )
        try:
            url = await _until_ready(process, log, start_timeout_s)
            yield OwnServer(Address(url), process.pid, time.monotonic() - began)
        finally:
            await _stop(process)


async def _until_ready(process: Process, log: Path, timeout_s: float) -> str:
    """Returns the server's URL. Raises ServerStartError with the end of its output."""
    deadline = time.monotonic() + timeout_s
    while True:
        is_last_poll = process.returncode is not None or time.monotonic() > deadline
        output = await asyncio.to_thread(log.read_text, errors="replace")
        if ready := READY.search(output):
            return ready[1]
        if is_last_poll:
            last = "\n".join(output.splitlines()[-KEPT_LINES:])
            raise ServerStartError(
                f"the server did not become ready; the end of its output: {last}"
            )
        await asyncio.sleep(POLL_S)


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
