"""The servers side by side: how each is started, and what one talker is to it."""

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
from bench.peers.utterance_audio import BenchUtterance

START_TIMEOUT_S = 120
LOOK_AGAIN_S = 0.05
INSIDE = Path(__file__).with_name("run_peer.py")


@dataclass(frozen=True, slots=True)
class UtteranceResult:
    """What one utterance came to."""

    text: str
    took_ms: float
    "The last speech sample spoken to the text that stays."
    next_at: float
    "When the next utterance may begin, in the loop's seconds."


class AsrClient(Protocol):
    """One person who speaks to one system, an utterance at a time."""

    async def say(self, utterance: BenchUtterance) -> UtteranceResult:
        """In real time. Raises EarshotError when there is no answer."""
        ...


class SystemUnderTest(Protocol):
    """A server that runs."""

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int:
        """Of its first process."""
        ...

    def talker(self) -> AbstractAsyncContextManager[AsrClient]: ...


@dataclass(frozen=True, slots=True)
class PeerProcess:
    """A peer, listening."""

    port: int
    pid: int


@asynccontextmanager
async def peer_process(
    kind: PeerKind, model: Path, threads: int, log: Path
) -> AsyncGenerator[PeerProcess, None]:
    """Started, until the body is done. Raises NotInstalled when it does not come up."""
    command = [str(INSIDE), kind, "--model", str(model), "--threads", str(threads)]
    async with started(kind, command, threads, log) as process:
        yield process


@asynccontextmanager
async def started(
    kind: PeerKind | VoiceKind, command: Sequence[str], threads: int, log: Path
) -> AsyncGenerator[PeerProcess, None]:
    """A script of ours by the peer's interpreter, which listens on the `--port` that is added.

    Raises NotInstalled.
    """
    port = free_port()
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            str(python_of(kind)),
            *command,
            *("--port", str(port)),
            stdin=PIPE,
            stdout=said,
            stderr=said,
            env={"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
        )
        try:
            if not await _listens(process, port):
                raise MissingPeer(f"{kind} did not start; what it said is in {log}")
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
            await asyncio.sleep(LOOK_AGAIN_S)
            continue
        writer.close()
        return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
