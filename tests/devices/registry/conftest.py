"""Every test of the registry runs against SQLite, and with `make test-real` against PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.registry.postgres import Postgres, postgres


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/devices.db"
    running: Postgres = request.getfixturevalue("server")
    return running.create()
