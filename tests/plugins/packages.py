"""Installs a package where Python finds it, with the metadata that pip would write."""

import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.packages.plugins import forget_plugins

EXAMPLES = {
    kind: Path(__file__).parent / f"earshot_example_{kind}" for kind in ("engine", "tool", "door")
}


@contextmanager
def searched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Makes packages in this folder importable while the body runs; then unloads their modules."""
    monkeypatch.syspath_prepend(folder)
    forget_plugins()
    try:
        yield folder
    finally:
        forget_plugins()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


def install(source: Path, site: Path) -> None:
    """Installs a folder with a pyproject.toml and modules, as `pip install` does."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for module in source.glob("*.py"):
        shutil.copy(module, site)
    declare(site, project["name"], project["entry-points"], version=project["version"])


def declare(
    site: Path, package: str, groups: Mapping[str, Mapping[str, str]], *, version: str = "1.0"
) -> None:
    """Writes a package's metadata. `groups`: group -> name of an entry point -> its target."""
    info = site / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
