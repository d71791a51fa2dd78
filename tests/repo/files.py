"""The files of the repository on which its own rules are checked."""

import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copy2
from subprocess import run

from tests.shared import ROOT

PACKAGES = (
    "core",
    "media",
    "engines",
    "firmware_protocol",
    "serving",
    "pipeline",
    "signaling",
    "devices",
    "web",
    "server",
    "bench",
)


def python_files(*folders: str) -> Iterator[Path]:
    """Every Python file below the named folders, without caches."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def page_files() -> Iterator[Path]:
    """Returns the source files of the page."""
    for suffix in ("*.js", "*.css", "*.html"):
        yield from sorted((ROOT / "web" / "static").rglob(suffix))


def repository_files() -> Iterator[Path]:
    """Every file git knows or would add, relative to the root."""
    listed = run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in sorted(set(listed.split("\0")) - {""}):
        if (ROOT / name).is_file():
            yield Path(name)


def build_wheel(source: Path | None, folder: Path) -> Path:
    """The wheel of a package; without a source that of this repository, from a copy, so that no
    build folder appears in it."""
    if source is None:
        source = folder / "source"
        copy_repository(source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    wheels = folder / "dist"
    before = set(wheels.glob("*.whl"))
    done = run(
        [*build, "--wheel-dir", str(wheels), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = set(wheels.glob("*.whl")) - before
    return built


def copy_repository(target: Path, *below: str) -> None:
    """Copies the files of the repository (or those below the given paths) into a new folder."""
    for path in repository_files():
        if below and not any(path.is_relative_to(part) for part in below):
            continue
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        copy2(ROOT / path, target / path)
