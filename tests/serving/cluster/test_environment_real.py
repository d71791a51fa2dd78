"""The tests of the pool in an environment with Ray; the tests' own environment has none."""

import os
from pathlib import Path
from subprocess import run

import pytest

from tests.environments import make_environment
from tests.shared import ROOT

pytestmark = pytest.mark.real

LIMIT_S = 600


def test_pool_passes_where_ray_is_installed(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv", "-e", f"{ROOT}[dev,scale]")
    command = [str(python), "-m", "pytest", "-n", "0", "tests/serving/cluster/test_pool.py"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    result = run(
        command,
        check=False,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert result.returncode == 0, result.stdout[-3000:]
    assert "skipped" not in result.stdout
