"""What several tests of the repository need: the wheel, built once."""

from pathlib import Path

import pytest

from tests.repo.files import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(None, tmp_path_factory.mktemp("wheel"))
