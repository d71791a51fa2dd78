"""Runs the proofs of engines (`proof_*.py`), where torch and transformers are installed.

Our own test environment has neither, but vLLM's has both: this makes one that looks into vLLM's
packages and then into ours. To run proofs yourself, in an environment with the extras `torch` and
`dev`: `python -m pytest tests/engines/asr/whisper_torch/proof_*.py`.
"""

import sys
import venv
from pathlib import Path
from subprocess import check_output, run
from sysconfig import get_path

import pytest

from engines.llm.vllm.environment import python_of
from tests.engines.llm.vllm.installation import installed
from tests.shared import ROOT

pytestmark = [pytest.mark.real, pytest.mark.late]

FOLDER = Path(__file__).parent

PROOFS = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("proof_*.py"))

PROOF_S = 1500
"Some proofs take minutes of one core, which other programs may use, too."

ADDED = ("pocket-tts >=4.0.1,<5", "scipy")
"The extra `pocket`, as far as vLLM's packages lack it."

PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes an environment and returns its Python. It prefers vLLM's packages, because its
    transformers needs those versions."""
    folder = tmp_path_factory.mktemp("environment")
    theirs = check_output([python_of(installed()), "-c", PACKAGES], text=True).strip()
    venv.create(folder, symlinks=True)
    made = python_of(folder)
    install = ("-m", "pip", "--python", str(made), "install", "--quiet", "--no-deps")
    run([sys.executable, *install, *ADDED], check=True)
    own = check_output([made, "-c", PACKAGES], text=True).strip()
    packages = f"{theirs}\n{get_path('purelib')}\n{ROOT}\n"
    (Path(own) / "both.pth").write_text(packages, encoding="utf-8")
    return made


@pytest.mark.parametrize("proof", PROOFS)
def test_the_proof_passes(python: Path, proof: str) -> None:
    command = [str(python), "-m", "pytest", str(FOLDER / proof)]
    # Threads that spin while they wait would take the cores from each other.
    done = run(
        ["env", "OMP_NUM_THREADS=1", *command, "-p", "no:cacheprovider", "--timeout=0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROOF_S,
        check=False,
    )
    sys.stdout.write(done.stdout[-6000:])
    assert done.returncode == 0, done.stderr[-4000:]
