"""A simulated satellite, in an environment with the library that speaks its protocol.

The library is not among the packages for development: its wheel installs a package `bench` of its
own. The files `proof_*.py` hold the tests.
"""

import sys
from pathlib import Path
from subprocess import check_output, run
from sysconfig import get_path

import pytest

from tests.environments import make_environment
from tests.shared import ROOT

pytestmark = pytest.mark.real

FOLDER = Path(__file__).parent
PROOFS = sorted(one.name for one in FOLDER.glob("proof_*.py"))
PROOF_S = 300

PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes an environment with the locked library; everything else comes from this one."""
    made = make_environment(
        tmp_path_factory.mktemp("environment"),
        "aioesphomeapi",
        "-c",
        str(ROOT / "requirements.lock"),
    )
    own = check_output([made, "-c", PACKAGES], text=True).strip()
    (Path(own) / "ours.pth").write_text(f"{get_path('purelib')}\n", encoding="utf-8")
    return made


@pytest.mark.parametrize("proof", PROOFS)
def test_the_proof_passes(python: Path, proof: str) -> None:
    done = run(
        [str(python), "-m", "pytest", str(FOLDER / proof), "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROOF_S,
        check=False,
    )
    sys.stdout.write(done.stdout[-6000:])
    assert done.returncode == 0, done.stderr[-4000:]
