"""A real server under a guard process ends together with all its processes."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from core.errors import EngineError
from engines.runtime.external_server.output_log import ServerLog
from engines.runtime.external_server.process import (
    GUARD,
    GUARD_GRACE_S,
    ServerProcess,
    start_server,
)
from engines.runtime.external_server.program import reserve_port

pytestmark = pytest.mark.live

FAKE = Path(__file__).with_name("fake_model_server.py")
KEY = "key-of-this-start"
GRACE_S = 0.5
LIMIT_S = 20


class RecordingLog(ServerLog):
    """A log that sets `ready` when the server is ready, and knows the server's child process."""

    def __init__(self) -> None:
        super().__init__("tts.parrot", KEY, lambda: 1.0)
        self.ready = asyncio.Event()
        self.text = ""

    def feed(self, data: bytes) -> None:
        super().feed(data)
        self.text += data.decode()
        if "ready" in self.text and self.text.endswith("\n"):
            self.ready.set()

    @property
    def child(self) -> psutil.Process:
        return psutil.Process(int(self.text.split("ready ")[1].split()[0]))


def command(port: int, *more: str) -> list[str]:
    return [sys.executable, str(FAKE), str(port), *more]


@asynccontextmanager
async def serving(*more: str) -> AsyncIterator[tuple[ServerProcess, RecordingLog]]:
    log = RecordingLog()
    with reserve_port("tts", "parrot", "127.0.0.1", 0) as port:
        words = command(port, *more)
        async with asyncio.timeout(LIMIT_S):
            async with start_server(words, {"MODEL_SERVER_KEY": KEY}, log, GRACE_S) as process:
                await log.ready.wait()
                with socket.create_connection(("127.0.0.1", port), timeout=5):
                    pass  # the server can use the port that is reserved for it
                yield process, log


@pytest.mark.parametrize("more", [(), ("--stubborn",), ("--escape",)])
def test_no_process_of_a_server_is_left(more: tuple[str, ...]) -> None:
    async def scenario() -> list[psutil.Process]:
        async with serving(*more) as (process, log):
            server = psutil.Process(process.pid)
            (guard,) = server.parents()[:1]
            assert guard.ppid() == os.getpid()
            return [guard, server, log.child]

    assert not [one for one in asyncio.run(scenario()) if one.is_running()]


@pytest.mark.parametrize("more", [(), ("--escape",)])
def test_a_killed_server_leaves_no_orphan(more: tuple[str, ...]) -> None:
    async def scenario() -> psutil.Process:
        async with serving(*more) as (process, log):
            orphan = log.child
            os.kill(process.pid, signal.SIGKILL)
            assert await process.wait() == "it was ended by signal 9"
            return orphan

    assert not asyncio.run(scenario()).is_running()


def test_a_killed_guard_leaves_no_process() -> None:
    async def scenario() -> list[psutil.Process]:
        async with serving() as (process, log):
            server = psutil.Process(process.pid)
            family = [server, log.child]
            os.kill(server.parents()[0].pid, signal.SIGKILL)
            assert await process.wait() == "its guard process was ended by signal 9"
        return family

    _, alive = psutil.wait_procs(asyncio.run(scenario()), timeout=LIMIT_S)
    assert not alive


def test_cancelling_ends_the_server() -> None:
    async def scenario() -> list[psutil.Process]:
        family: list[psutil.Process] = []

        async def hold() -> None:
            async with serving() as (process, log):
                family.extend([psutil.Process(process.pid), log.child])
                up.set()
                await asyncio.Event().wait()

        up = asyncio.Event()
        holder = asyncio.create_task(hold())
        await up.wait()
        holder.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holder
        return family

    family = asyncio.run(scenario())
    assert len(family) == 2
    assert not [one for one in family if one.is_running()]


@pytest.mark.parametrize("victim", ["us", "the guard"])
def test_the_server_ends_when_its_parent_or_guard_is_killed(victim: str) -> None:
    """The victim is killed without a chance to clean up."""
    with reserve_port("tts", "parrot", "127.0.0.1", 0) as port:
        guard = [sys.executable, "-I", str(GUARD), str(GRACE_S), *command(port)]
        # `us` is a shell with our standard output, whose pipe holds the guard.
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, *guard], stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout is not None
        guard_pid, server_pid = int(holder.stdout.readline()), int(holder.stdout.readline())
        child_pid = int(holder.stdout.readline().split()[1])
        family = [psutil.Process(guard_pid), psutil.Process(server_pid)]
        if victim == "us":
            family.append(psutil.Process(child_pid))
        os.kill(holder.pid if victim == "us" else guard_pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(family, timeout=LIMIT_S)
        for pid in (holder.pid, child_pid):
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
        holder.communicate(timeout=LIMIT_S)
        assert not alive


HOLDER = """
import subprocess, sys, time
guard = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
print(guard.pid, flush=True)
guard.stdin.write(b'{}\\n')
guard.stdin.flush()
guard.wait()
time.sleep(600)
"""


def test_the_key_is_in_no_command_line_and_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "engines.runtime.external_server")

    async def scenario() -> None:
        async with serving() as (process, log):
            server = psutil.Process(process.pid)
            assert server.environ()["MODEL_SERVER_KEY"] == KEY
            assert f" {KEY}" in log.text
            for one in (server, *server.parents()[:1]):
                assert KEY not in " ".join(one.cmdline())
            assert KEY not in server.parents()[0].environ().values()

    asyncio.run(scenario())
    assert "ready" in caplog.text
    assert KEY not in caplog.text


def test_a_server_that_fails_gives_its_status_and_error() -> None:
    async def scenario() -> None:
        log = RecordingLog()
        async with asyncio.timeout(LIMIT_S):
            async with start_server(command(1, "--fail"), {}, log, GRACE_S) as process:
                assert await process.wait() == "it ended with status 1"
            assert log.summary() == "ValueError: no such model"

    asyncio.run(scenario())


def test_a_missing_program_cannot_be_started() -> None:
    async def scenario() -> None:
        async with start_server(["/nonexistent/python"], {}, RecordingLog(), GRACE_S):
            pytest.fail("it was started")

    with pytest.raises(OSError, match=r"could not be started.*nonexistent"):
        asyncio.run(scenario())


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        held = reserve_port("tts", "parrot", "127.0.0.1", port)
        with pytest.raises(EngineError, match=f"tts engine 'parrot': port {port}.*in use"):
            held.__enter__()


def test_ending_takes_no_longer_than_the_grace_period() -> None:
    async def scenario() -> float:
        async with serving("--stubborn"):
            began_s = time.monotonic()
        return time.monotonic() - began_s

    assert GRACE_S <= asyncio.run(scenario()) < GRACE_S + GUARD_GRACE_S
