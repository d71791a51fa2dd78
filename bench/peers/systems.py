"""Interface of the compared servers and their clients, and the start of a peer."""

import asyncio
import socket
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.peers.environments import MissingPeer, PeerKind, VoiceKind, python_of
from bench.tools.utterance_audio import BenchUtterance

START_TIMEOUT_S = 120
"Longest wait for a system to accept connections."

POLL_S = 0.05
"Time between two attempts to connect."

RUN_PEER = Path(__file__).with_name("run_peer.py")


@dataclass(frozen=True, slots=True)
class UtteranceResult:
    """Result of one utterance."""

    text: str
    took_ms: float
    "Time from the last speech sample to the final text."
    next_at: float
    "Time at which the next utterance may begin, in the event loop's seconds."


class AsrClient(Protocol):
    """One client of one system, which speaks an utterance at a time."""

    async def say(self, utterance: BenchUtterance) -> UtteranceResult:
        """Sends an utterance in real time. Raises EarshotError when there is no answer."""
        ...


class SystemUnderTest(Protocol):
    """A running server."""

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int:
        """Process id of its first process."""
        ...

    def client(self) -> AbstractAsyncContextManager[AsrClient]: ...


@dataclass(frozen=True, slots=True)
class PeerProcess:
    """A running peer that listens on `port`."""

    port: int
    pid: int


@asynccontextmanager
async def peer_process(
    kind: PeerKind, model: Path, threads: int, log: Path
) -> AsyncGenerator[PeerProcess, None]:
    """Runs a peer while the body runs. Raises MissingPeer when it does not start."""
    command = [str(RUN_PEER), kind, "--model", str(model), "--threads", str(threads)]
    async with started(kind, command, threads, log) as process:
        yield process


@asynccontextmanager
async def started(
    kind: PeerKind | VoiceKind, command: Sequence[str], threads: int, log: Path
) -> AsyncGenerator[PeerProcess, None]:
    """Runs one of Earshot's scripts with the peer's interpreter. Raises MissingPeer.

    The script must listen on the `--port` that is added.
    """
    port = free_port()
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            str(python_of(kind)),
            *command,
            *("--port", str(port)),
            stdin=PIPE,
            stdout=output,
            stderr=output,
            env={"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
        )
        try:
            if not await _listens(process, port):
                raise MissingPeer(f"{kind} did not start; its output is in {log}")
            yield PeerProcess(port, process.pid)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _listens(process: asyncio.subprocess.Process, port: int) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.returncode is None and time.monotonic() < deadline:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(POLL_S)
            continue
        writer.close()
        return True
    return False


def free_port() -> int:
    """Returns a port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
