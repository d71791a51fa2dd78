"""Processes of `earshot` that begin as forks of a process that has imported it.

Importing the server takes more than a second of processor time, and the tests start hundreds of
processes. tests/server/test_serve.py starts `earshot` by its command, as users do.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from tempfile import TemporaryFile
from typing import IO, Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.server.preloaded"])


class ForkedProcess:
    """A process of `earshot`, with the members of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        output: IO[Any],
        error: IO[Any],
    ) -> None:
        """Starts `earshot` with these arguments. `output`, `error`: files that it writes to."""
        with _passable(output) as own_output, _passable(error) as own_error:
            files = own_output, own_error
            self._process = _context.Process(
                target=_earshot, args=(arguments, cwd, dict(env), *files)
            )
            self._process.start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Returns the exit code; the negative number of the signal that ended it; None while it
        runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Waits until it has ended, and returns the exit code. Raises TimeoutExpired after
        `timeout` seconds."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise TimeoutExpired("earshot", timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal. Does nothing after the end."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)


def run_earshot(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float
) -> CompletedProcess[str]:
    """Runs one command to its end. Raises TimeoutExpired after `timeout_s` seconds."""
    with (
        TemporaryFile("w+", encoding="utf-8") as output,
        TemporaryFile("w+", encoding="utf-8") as error,
    ):
        process = ForkedProcess(arguments, cwd, env, output, error)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        for file in (output, error):
            file.seek(0)
        return CompletedProcess(arguments, code, output.read(), error.read())


def _passable(file: IO[Any]) -> Connection:
    """Returns the file in a form that can be passed to another process."""
    return Connection(os.dup(file.fileno()), readable=False)


def _earshot(
    arguments: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    output: Connection,
    error: Connection,
) -> None:
    """Makes this fork what `python -m server` with these arguments would be."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for file, number in ((output, 1), (error, 2)):
        os.dup2(file.fileno(), number)
        file.close()
    sys.argv = ["earshot", *arguments]
    sys.orig_argv = [sys.executable, "-m", "server", *arguments]  # a server that restarts uses it
    from server.__main__ import main

    sys.exit(main())
