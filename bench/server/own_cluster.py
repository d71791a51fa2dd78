"""Runs a cluster of one machine with Ray in processes of its own, for measurements and tests."""

import asyncio
import os
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from bench.server.own_server import KEPT_LINES, ServerStartError

START_TIMEOUT_S = 180.0
"Longest start: Ray takes 7 s on a quiet machine, and a minute where others use the processors."

START_TRIES = 3
"""Times that it is started. Ray gives up when its node is not ready after 30 s, which happens where
others use all processors."""

POLL_S = 0.1
"Interval of the checks whether the head is ready."

READY = "Ray runtime started."
"Text that Ray prints when its head accepts connections."

ELSEWHERE = ("198.51.100.1", 9)
"An address of a network for documentation (RFC 5737), on the way to which is the default route."

REPLICA = "ray::ServeReplica"
"Start of the title of a process that is a replica."


@dataclass(frozen=True, slots=True)
class OwnCluster:
    """A running cluster."""

    environ: Mapping[str, str] = field(repr=False)
    "Environment variables of a server that uses it."
    pid: int
    "Number of the head's process."

    def replicas(self) -> list[psutil.Process]:
        """Returns the processes of the replicas that run now."""
        children = psutil.Process(self.pid).children(recursive=True)
        return [each for each in children if _command_line(each).startswith(REPLICA)]


@asynccontextmanager
async def own_cluster(cpus: int = 2) -> AsyncIterator[OwnCluster]:
    """Runs the head of a cluster while the body runs, with `earshot cluster start` and nothing of
    this machine's settings. `cpus`: processors that it offers. Raises ServerStartError."""
    address = _own_address()
    with TemporaryDirectory(prefix="earshot-ray-") as folder:
        token = Path(folder) / "cluster-token"
        own = {key: text for key, text in os.environ.items() if not key.startswith("EARSHOT_")}
        own |= {"EARSHOT_CLUSTER__TOKEN_FILE": str(token), "RAY_TMPDIR": folder}
        log = Path(folder) / "log"
        for is_last in (*[False] * (START_TRIES - 1), True):
            port = _free_port()
            process = await _start(f"{address}:{port}", cpus, own, log)
            try:
                await _until_ready(process, log)
            except ServerStartError:
                await _end(process, folder)
                if is_last:
                    raise
                continue
            try:
                environ = {
                    "EARSHOT_CLUSTER__TOKEN_FILE": str(token),
                    "EARSHOT_CLUSTER__ADDRESS": f"{address}:{port}",
                    "RAY_TMPDIR": folder,
                }
                yield OwnCluster(environ, process.pid)
            finally:
                await _end(process, folder)
            return


async def _start(head: str, cpus: int, environ: Mapping[str, str], log: Path) -> Process:
    """Starts the head. `head`: its address and port. `log`: gets its output."""
    address, _, port = head.partition(":")
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "server", "cluster", "start", "--port", port),
            *("--cpus", str(cpus), "--address", address, "--behind-firewall"),
            env=environ,
            stdin=DEVNULL,
            stdout=output,
            stderr=STDOUT,
        )


async def _until_ready(process: Process, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while READY not in (output := await asyncio.to_thread(log.read_text, errors="replace")):
        if process.returncode is not None or time.monotonic() > deadline:
            last = "\n".join(output.splitlines()[-KEPT_LINES:])
            raise ServerStartError(f"Ray did not start; the end of its output: {last}")
        await asyncio.sleep(POLL_S)


async def _end(process: Process, folder: str) -> None:
    """Kills the head and all that it has started, also what a failed start has left. A drain would
    take Ray half a minute, and nobody needs the replicas any more. `folder`: that of the cluster,
    which the command lines of Ray's programs name."""
    started: list[psutil.Process] = []
    if process.returncode is None:
        started += psutil.Process(process.pid).children(recursive=True)
    started += [each for each in psutil.process_iter() if folder in _command_line(each)]
    if process.returncode is None:
        process.kill()
    for each in started:
        with suppress(psutil.Error):
            each.kill()
    await process.wait()
    await asyncio.to_thread(psutil.wait_procs, started, 10)


def _command_line(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _own_address() -> str:
    """Returns the address from which this machine reaches others. Raises ServerStartError."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect(ELSEWHERE)  # sends nothing
            address: str = asked.getsockname()[0]
    except OSError as error:
        raise ServerStartError(f"this machine has no network, and Ray needs one: {error}") from None
    return address


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        port: int = found.getsockname()[1]
        return port
