"""Guard program that runs a server, and ends it when our process is gone.

Run it as `python -I process_group_guard.py GRACE_S COMMAND...`. It uses only the standard library.

Standard input: one line of JSON with environment variables for the server, so that no key is
visible in a command line. When standard input then closes, our process is gone or wants the server
to stop. Standard output: the server's process id, then all output of the server.

Many model servers compute in child processes, which live on when the process that serves HTTP is
killed. They share its process group. Before the guard ends, it kills that group and all processes
that have left it.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(arguments: list[str]) -> int:
    """Runs the server and returns its exit status; 128 plus the signal's number if a signal ended
    it."""
    grace_s, command = float(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None)
    # Orphans of the server become our children, so that we can wait until the last is gone.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for name, value in json.loads(sys.stdin.readline()).items():
        os.putenv(name, value)
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        # If we are killed, the kernel kills the server. preexec_fn is safe: we have one thread.
        preexec_fn=lambda: libc.prctl(  # noqa: PLW1509
            _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0
        ),
    )
    try:
        sys.stdout.write(f"{server.pid}\n")
        sys.stdout.flush()
        server_fd = os.pidfd_open(server.pid)  # becomes readable when the server ends
        if server_fd not in _readable(server_fd, sys.stdin.fileno()):
            server.terminate()
            _readable(server_fd, timeout_s=grace_s)
    finally:
        # The server is not reaped yet, so no other process group can have its number.
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
    status = server.wait()
    with suppress(ChildProcessError):
        while True:
            for orphan in _children():  # processes that left the group
                with suppress(PermissionError):
                    os.kill(orphan, signal.SIGKILL)
            os.wait()
    return status if status >= 0 else 128 - status


def _children() -> list[int]:
    """Returns the process ids of our children, as the kernel lists them."""
    try:
        listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(pid) for pid in listed.split()]


def _readable(*files: int, timeout_s: float | None = None) -> list[int]:
    """Waits until one of the files can be read, and returns those that can."""
    return select.select(files, [], [], timeout_s)[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
