"""Compiles the C client as its users would, with stricter warnings."""

import shutil
from pathlib import Path
from subprocess import run

from tests.conftest import require
from tests.shared import ROOT

C = ROOT / "firmware_protocol" / "c"
LIBRARY = sorted((C / "src").glob("*.c"))

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
LIBRARY_WARNINGS = (*WARNINGS, "-Wconversion")
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compiler(name: str) -> str:
    """Returns the path of a compiler; skips the test if it is missing."""
    path = shutil.which(name)
    require(path, f"needs {name}")
    return str(path)


def compile_c(cc: str, *arguments: str | Path) -> None:
    """Runs a compiler, which must not warn. A relative path is one below firmware_protocol/c."""
    done = run(
        [compiler(cc), "-Iinclude", *map(str, arguments)],
        cwd=C,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr


def link_with_library(cc: str, target: Path, *arguments: str | Path) -> Path:
    """Builds a program of the library and these sources, with ASan and UBSan."""
    compile_c(cc, *WARNINGS, *SANITIZED, *LIBRARY, *arguments, "-o", target)
    return target
