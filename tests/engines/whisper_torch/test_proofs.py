"""Runs the proofs of this folder (`proof_*.py`) where torch and transformers are.

They are none of our own test environment: this makes one with the extra `torch`, kept for the next
run in `EARSHOT_CI_STATE`. By hand: `python -m pytest tests/engines/whisper_torch/proof_*.py` there.
"""

import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from subprocess import run

import pytest

from engines.llm.vllm.environment import python_of
from server.pip import IndexUnreachable, InstallFailed, pip
from server.vllm_install import TORCH_FOR_CPU
from tests.engines.vllm_home import STATE
from tests.shared import ROOT

pytestmark = pytest.mark.real

ENVIRONMENT = STATE / "torch"
PROOF_S = 1800
FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def python() -> Path:
    """Of that environment."""
    found = python_of(ENVIRONMENT)
    if not found.exists():
        run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        _install_torch(found)
    pip(found, "install", "-e", f"{ROOT}[torch,dev]", tell=print)
    return found


def _install_torch(python: Path) -> None:
    """One without CUDA, a tenth as large, from wherever it can be had; else the usual one comes."""
    torch = next(one for one in _extra() if one.startswith("torch")).replace(" ", "")
    for place in ((), ("--extra-index-url", TORCH_FOR_CPU)):
        with suppress(InstallFailed, IndexUnreachable):
            pip(python, "install", f"{torch}+cpu", *place, "--retries", "0", tell=print)
            return


def _extra() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[str] = project["optional-dependencies"]["torch"]
    return found


@pytest.mark.parametrize("proof", sorted(path.name for path in FOLDER.glob("proof_*.py")))
def test_proof(python: Path, proof: str) -> None:
    command = [str(python), "-m", "pytest", str(FOLDER / proof), "-p", "no:cacheprovider"]
    # Threads that spin while they wait take the cores from each other on a busy machine.
    done = run(
        ["env", "OMP_NUM_THREADS=1", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROOF_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
