"""What the repository's own rules are checked on."""

from collections.abc import Iterator
from pathlib import Path

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
    """The page's own sources."""
    for suffix in ("*.js", "*.css", "*.html"):
        yield from sorted((ROOT / "web" / "static").rglob(suffix))
