"""Every package of the lock is installed from a wheel, on Intel and on ARM, so that a machine
without a compiler can run Earshot."""

import os
from itertools import product
from pathlib import Path
from subprocess import run

import pytest

from tests.environments import UV
from tests.shared import ROOT

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("checkout")]

PLATFORMS = {
    "2_28": ("bench", "kokoro", "mcp", "mic", "piper", "postgresql"),
    "2_36": ("wake",),  # its wheels need glibc 2.35; scripts/install.sh leaves it out below that
}
"Version of glibc -> extras that must have wheels for it. 2.28 is that of Debian 10 and RHEL 8."

COMPILED = {("x86_64", "3.14"), ("aarch64", "3.12"), ("aarch64", "3.14")}
"Where PocketSphinx has no wheel and is left out, unless it can be compiled."


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def _resolved(cache: Path, python: str, platform: str, *extras: str) -> str:
    """Returns the pins that an installation on that machine takes, from wheels alone."""
    process = run(
        [
            *(UV, "pip", "compile", "--quiet", "--no-config", "--no-header", "--no-annotate"),
            *("--python-version", python, "--python-platform", platform),
            *("--only-binary", ":all:", "--constraint", "requirements.lock"),
            *(f"--extra={extra}" for extra in extras),
            "pyproject.toml",
        ],
        cwd=ROOT,
        env=os.environ | {"UV_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize(
    ("machine", "python"), list(product(("x86_64", "aarch64"), ("3.11", "3.12", "3.13", "3.14")))
)
def test_every_locked_package_has_a_wheel(cache: Path, machine: str, python: str) -> None:
    for glibc, extras in PLATFORMS.items():
        pins = _resolved(cache, python, f"{machine}-manylinux_{glibc}", *extras)
        assert "aiortc==" in pins
        assert ("\npocketsphinx==" in pins) == ((machine, python) not in COMPILED)
