"""Starts one external server process, reads its output, and ends it together with all processes
that it started. `process_group_guard.py` does the last part."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from engines.runtime.external_server.output_log import ServerLog

GUARD = Path(__file__).with_name("process_group_guard.py")
"The guard program, which ends the server when our process ends or asks for it."

GRACE_S = 10.0
"Time from the request to end until a server is killed: freeing a GPU takes some seconds."
GUARD_GRACE_S = 5.0
"Additional time for the guard, which only has to reap the processes."
LAST_OUTPUT_S = 1.0
"""Time to read what is left in the pipe. There is a limit because a process that left the group may
keep the pipe open."""
READ_BYTES = 64 * 1024
"Largest piece of output that is read at once."


class ServerProcess:
    """A running external server. `pid` is the server's own process id, not the guard's."""

    def __init__(self, process: asyncio.subprocess.Process, pid: int) -> None:
        self._process, self.pid = process, pid

    async def wait(self) -> str:
        """Waits until the server has ended, and returns a sentence that says how."""
        status = await self._process.wait()
        if status < 0:
            return f"its guard process was ended by signal {-status}"
        if status > 128:
            return f"it was ended by signal {status - 128}"
        return f"it ended with status {status}"


@asynccontextmanager
async def start_server(
    command: Sequence[str], variables: Mapping[str, str], log: ServerLog, grace_s: float = GRACE_S
) -> AsyncIterator[ServerProcess]:
    """Runs a server while the body runs. Afterwards no process of its group is left.

    `command`: program and arguments. `variables`: added to our own environment for the server.
    `log`: gets the server's output. Raises OSError when the server cannot be started.
    """
    log.begin()
    async with _pipe() as (stdout, write_end):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(GUARD),
            str(grace_s),
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=write_end,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl-C in a terminal does not reach it: we end it
        )
        write_end.close()
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(dict(variables)).encode() + b"\n")
            pid = (await stdout.readline()).strip()
            if not pid.isdigit():
                log.feed(pid + b"\n" + await stdout.read())
                raise OSError(f"it could not be started: {log.summary()}")
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(_read(stdout, log), name="server-log")
                try:
                    yield ServerProcess(process, int(pid))
                finally:
                    log.end()
                    await _end(process, grace_s)  # while we still read: a full pipe would block it
                    _kill_group(process, int(pid))
                    await asyncio.wait([reader], timeout=LAST_OUTPUT_S)
                    reader.cancel()
        finally:
            await _end(process, grace_s)


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, IO[bytes]]]:
    """Opens a pipe for the server's output. With asyncio's own pipe, a process would count as ended
    only when the last process has closed the write end, and an orphan may keep that open."""
    read_end, write_end = (
        os.fdopen(fd, mode) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
    )
    with read_end, write_end:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_read_pipe(lambda: protocol, read_end)
        try:
            yield reader, write_end
        finally:
            transport.close()


async def _end(process: asyncio.subprocess.Process, grace_s: float) -> None:
    """Asks the guard to end the server, and waits until all its processes are gone."""
    if process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(grace_s + GUARD_GRACE_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _kill_group(guard: asyncio.subprocess.Process, group: int) -> None:
    """Kills the process group if the guard was killed. The guard could not do it then, and the
    kernel has ended only the group's first process."""
    if guard.returncode is not None and guard.returncode < 0:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


async def _read(stdout: asyncio.StreamReader, log: ServerLog) -> None:
    while data := await stdout.read(READ_BYTES):
        log.feed(data)
    log.close()
