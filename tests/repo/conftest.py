"""The wheel, built once for several tests of the repository."""

from pathlib import Path

import pytest

from tests.repo.files import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(None, tmp_path_factory.mktemp("wheel"))
