"""Runs the proofs of this folder, which need torch: see `tests/torch_proofs.py`."""

from pathlib import Path

import pytest

from tests.torch_proofs import run_proof, torch_python

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("vllm")]

FOLDER = Path(__file__).parent

PROOFS = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("proof_*.py"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_python(tmp_path_factory.mktemp("environment"))


@pytest.mark.parametrize("proof", PROOFS)
def test_the_proof_passes(python: Path, proof: str) -> None:
    run_proof(python, FOLDER / proof)
