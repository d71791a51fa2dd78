"""A vLLM that our own command installed, and a model for it; kept for the next test or run.

`EARSHOT_CI_STATE` names the folder; in CI it is empty, so that the installation is tested too.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from subprocess import run
from zlib import crc32

from engines.llm.vllm.environment import python_of
from tests.server.process import environment
from tests.shared import ROOT

STATE = Path(os.environ.get("EARSHOT_CI_STATE") or Path.home() / ".cache" / "earshot-ci")

ENVIRONMENT = STATE / "engines" / "vllm"

CONTEXT_TOKENS = 524_288
"Room for an abandoned answer, which may use a quarter of it."

INSTALL_S = 1200


def earshot(*arguments: str, timeout_s: float = 300) -> str:
    """Returns the output of the command, which must succeed."""
    done = run(
        [sys.executable, "-m", "server", *arguments],
        env=environment(STATE, EARSHOT_STATE_DIR=str(STATE)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def installed() -> Path:
    """Returns the environment, installed by the first test that needs it; other workers' tests
    wait."""
    with used_by_one_test():
        earshot("engines", "install", "vllm", "--cpu", timeout_s=INSTALL_S)
    return ENVIRONMENT


@contextmanager
def used_by_one_test() -> Iterator[None]:
    """No other worker's test installs anything meanwhile."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "vllm-tests.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def tiny_llama() -> Path:
    """Writes the model once, with vLLM's Python, because our own environment has no torch."""
    python = python_of(installed())
    script = ROOT / "tests" / "tiny_llama.py"
    folder = STATE / f"tiny-llama-{crc32(script.read_bytes()):08x}"
    with used_by_one_test():
        if not folder.exists():
            made = folder.with_suffix(".part")
            command = [str(python), "-I", str(script), str(made)]
            run(command, check=True, capture_output=True, timeout=600)
            made.rename(folder)
    return folder
