"""Which machines get the libraries of CUDA, of wake words and PocketSphinx. The install script runs
with fake programs that only print their arguments."""

import os
import platform
from collections.abc import Mapping
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
    folder: Path,
    driver: str | None,
    libc: str = "echo glibc 2.34",
    *,
    compiles: bool = False,
    settings: Mapping[str, str] | None = None,
) -> str:
    """Returns the arguments of pip; empty if it is not called. `compiles`: the answer of Python
    when it is asked whether PocketSphinx must and can be compiled."""
    asked = folder / "asked"
    asked.unlink(missing_ok=True)
    answer = f'case "$*" in *has_wheel*) exit {0 if compiles else 1} ;; esac'
    _program(folder / "venv" / "bin" / "python", f'{answer}\necho "$@" >>{asked}')
    tools = folder / "tools"
    for compiler in ("cc", "c++"):
        _program(tools / compiler, "exit 1")
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
            **(settings or {}),
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
def test_cuda_libraries_are_installed_only_with_a_gpu(
    driver: str, settings: dict[str, str], requirement: str, tmp_path: Path
) -> None:
    assert _installed(tmp_path, driver, settings=settings) == requirement


def test_a_gpu_added_later_gets_the_libraries_once(tmp_path: Path) -> None:
    assert _installed(tmp_path, "exit 1") == "."
    assert _installed(tmp_path, "exit 1") == ""
    assert _installed(tmp_path, LISTED) == ".[gpu]"
    assert _installed(tmp_path, LISTED) == ""
    assert _installed(tmp_path, "exit 1") == ""  # what is there stays


def test_pocketsphinx_is_compiled_where_it_has_no_wheel(tmp_path: Path) -> None:
    assert _installed(tmp_path, None, compiles=True) == ".[pocketsphinx]"


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
def test_wake_words_are_installed_where_their_wheel_runs(
    libc: str, requirement: str, tmp_path: Path
) -> None:
    if platform.machine() not in ("x86_64", "aarch64"):
        requirement = "."
    assert _installed(tmp_path, None, libc, settings={"GPU": "0"}) == requirement
