"""A vLLM that our own command installed, and a model for it; kept for the next test or run.

`EARSHOT_CI_STATE` names the folder; in CI it is empty, so that the installation is tested too.
"""

import fcntl
import os
import sys
from pathlib import Path
from subprocess import run

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


def installed() -> Path:
    """Returns the environment, installed by the first test that needs it; other workers' tests
    wait."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "vllm-tests.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        earshot("engines", "install", "vllm", "--cpu", timeout_s=INSTALL_S)
    return ENVIRONMENT


def tiny_llama() -> Path:
    """Writes the model with vLLM's Python, because our own environment has no torch."""
    folder = STATE / "tiny-llama"
    script = ROOT / "tests" / "tiny_llama.py"
    python = python_of(ENVIRONMENT)
    run([str(python), "-I", str(script), str(folder)], check=True, capture_output=True, timeout=600)
    return folder
