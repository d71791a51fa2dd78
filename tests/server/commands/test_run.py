"""The end of a command: its exit code, and what the terminal shows."""

import os
import subprocess
import sys

import pytest

from server.commands.exit_codes import ExitCode
from tests.shared import ROOT

pytestmark = pytest.mark.live


def test_a_closed_pipe_ends_a_command_without_a_traceback() -> None:
    """The reader ends first, as `head` does in `earshot config | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "server", "config"],
            cwd=ROOT,
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (ExitCode.OUTPUT_CLOSED, b"")
