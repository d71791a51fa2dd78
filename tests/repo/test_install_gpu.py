"""Which machines get CUDA's libraries, and which the wake words': the install script with programs
that only say what they are asked."""

import os
import platform
from pathlib import Path
from subprocess import run

import pytest

from tests.shared import ROOT

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("checkout")]

LISTED = "echo 'GPU 0: NVIDIA L4 (UUID: GPU-1)'"


def _program(file: Path, script: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def _installed(
    folder: Path, driver: str | None, libc: str = "echo glibc 2.34", **settings: str
) -> str:
    """What pip is asked for; empty when it is not asked at all."""
    asked = folder / "asked"
    asked.unlink(missing_ok=True)
    _program(folder / "venv" / "bin" / "python", f'echo "$@" >>{asked}')
    tools = folder / "tools"
    _program(tools / "getconf", libc)
    (tools / "nvidia-smi").unlink(missing_ok=True)
    if driver is not None:
        _program(tools / "nvidia-smi", driver)
    kept = {name: value for name, value in os.environ.items() if name not in ("GPU", "EXTRAS")}
    run(
        [ROOT / "scripts" / "install.sh"],
        env={
            **kept,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "VENV": str(folder / "venv"),
            **settings,
        },
        check=True,
        capture_output=True,
        timeout=60,
    )
    lines = asked.read_text().splitlines() if asked.exists() else []
    return next((line.rpartition(" ")[2] for line in lines if "--editable" in line), "")


@pytest.mark.parametrize(
    ("driver", "settings", "requirement"),
    [
        (LISTED, {}, ".[gpu]"),
        (LISTED, {"EXTRAS": "dev"}, ".[dev,gpu]"),
        (LISTED, {"GPU": "0"}, "."),
        ("echo 'No devices were found'; exit 6", {}, "."),
        ("echo 'NVIDIA-SMI has failed' >&2; exit 9", {}, "."),
        ("exit 1", {"GPU": "1"}, ".[gpu]"),
    ],
)
def test_the_libraries_come_where_a_gpu_is(
    driver: str, settings: dict[str, str], requirement: str, tmp_path: Path
) -> None:
    assert _installed(tmp_path, driver, **settings) == requirement


def test_a_gpu_that_comes_later_gets_them_and_nothing_is_done_twice(tmp_path: Path) -> None:
    assert _installed(tmp_path, "exit 1") == "."
    assert _installed(tmp_path, "exit 1") == ""
    assert _installed(tmp_path, LISTED) == ".[gpu]"
    assert _installed(tmp_path, LISTED) == ""
    assert _installed(tmp_path, "exit 1") == ""  # what is there stays


@pytest.mark.parametrize(
    ("libc", "requirement"),
    [
        ("echo glibc 2.35", ".[wake]"),
        ("echo glibc 2.41", ".[wake]"),
        ("echo glibc 3.0", ".[wake]"),
        ("echo glibc 2.9", "."),
        ("exit 1", "."),
    ],
)
def test_the_wake_words_come_where_their_wheel_runs(
    libc: str, requirement: str, tmp_path: Path
) -> None:
    if platform.machine() not in ("x86_64", "aarch64"):
        requirement = "."
    assert _installed(tmp_path, None, libc, GPU="0") == requirement
