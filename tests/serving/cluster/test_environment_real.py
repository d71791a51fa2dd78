"""The tests of the pools in an environment with Ray; the tests' own environment has none."""

import fcntl
import os
from pathlib import Path
from subprocess import CalledProcessError, TimeoutExpired, run
from zlib import crc32

import pytest

from tests.conftest import require
from tests.engines.llm.vllm.installation import STATE
from tests.environments import make_environment
from tests.shared import ROOT

pytestmark = pytest.mark.real

LIMIT_S = 900
FOLDER = "tests/serving/cluster"


def environment_with_ray() -> Path:
    """Returns the interpreter of an environment with Ray, which is made once and kept. It has pip,
    which fetches weights. Skips the test if the packages cannot be had."""
    STATE.mkdir(parents=True, exist_ok=True)
    wanted = (ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode()
    folder = STATE / f"ray-{crc32(wanted):08x}"
    with (STATE / "ray-tests.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            try:
                make_environment(folder, "pip", "-e", f"{ROOT}[dev,scale]")
            except (CalledProcessError, TimeoutExpired) as error:
                require(False, f"Ray cannot be installed here: {error}")
            (folder / "complete").touch()
    return folder / "bin" / "python"


@pytest.mark.parametrize(
    ("marker", "files"),
    [
        ("not real", ("test_pool.py", "test_stream_pools.py")),
        ("real", ("test_two_replicas.py",)),
    ],
    ids=["local testing mode", "a cluster of two processors"],
)
def test_pools_pass_where_ray_is_installed(marker: str, files: tuple[str, ...]) -> None:
    command = [str(environment_with_ray()), "-m", "pytest", "-n", "0", "-m", marker]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    result = run(
        [*command, *(f"{FOLDER}/{file}" for file in files)],
        check=False,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert result.returncode == 0, result.stdout[-3000:]
    assert "skipped" not in result.stdout
    assert "SKIPPED" not in result.stdout
