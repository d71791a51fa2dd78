"""What several tests of the repository need: the wheel, built once."""

import sys
from pathlib import Path
from subprocess import run

import pytest

from tests.repo.files import copy_repository


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no build folder appears in the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    copy_repository(folder / "source")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = run(
        [*build, "--wheel-dir", str(folder), str(folder / "source")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built
