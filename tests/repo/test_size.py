"""A hard limit for the length of files and functions."""

import ast
import warnings
from collections import defaultdict
from pathlib import Path

import pytest

from engines.registry import PROTOCOLS
from tests.repo.files import PACKAGES, page_files, python_files, repository_files
from tests.shared import ROOT

pytestmark = pytest.mark.live

FILE_LINES = 300
FILE_LINES_HARD = 600
FUNCTION_LINES = 40
FUNCTION_LINES_HARD = 80
FOLDER_ENTRIES = 12
ON_A_TURNS_WAY = {"core", "media", "engines", "serving", "pipeline", "signaling"}
KINDS = {Path("engines", kind) for kind in PROTOCOLS}


def _functions(source: str) -> list[tuple[str, int, int]]:
    """(name, first line, number of lines) of every function, nested ones too."""
    nodes = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [(n.name, n.lineno, (n.end_lineno or n.lineno) - n.lineno + 1) for n in nodes]


def _report(sizes: list[tuple[str, int]], wanted: int, hard: int) -> None:
    too_long = sorted(((size, name) for name, size in sizes if size > wanted), reverse=True)
    if too_long:
        listed = "\n".join(f"  {size:4} {name}" for size, name in too_long)
        warnings.warn(f"more than {wanted} lines; think again:\n{listed}", stacklevel=2)
    assert [name for size, name in too_long if size > hard] == []


def test_no_file_is_too_long() -> None:
    files = [*python_files(*PACKAGES, "tests"), *page_files()]
    assert files
    sizes = [
        (str(path.relative_to(ROOT)), len(path.read_text(encoding="utf-8").splitlines()))
        for path in files
    ]
    _report(sizes, FILE_LINES, FILE_LINES_HARD)


def test_no_function_is_too_long() -> None:
    sizes = [
        (f"{path.relative_to(ROOT)}:{line} {name}", lines)
        for path in python_files(*PACKAGES, "tests")
        for name, line, lines in _functions(path.read_text(encoding="utf-8"))
    ]
    assert sizes
    _report(sizes, FUNCTION_LINES, FUNCTION_LINES_HARD)


def test_no_folder_on_a_turns_way_has_too_many_entries() -> None:
    """The folders of the kinds of engines count as one entry (ADR 106)."""
    entries: dict[Path, set[Path]] = defaultdict(set)
    for file in repository_files():
        if file.parts[0] in ON_A_TURNS_WAY and file.name != "__init__.py":
            for entry in (file, *file.parents[:-2]):
                entries[entry.parent].add(Path("engines", "KIND") if entry in KINDS else entry)
    assert Path("pipeline/user_turn") in entries
    full = {str(folder): len(found) for folder, found in entries.items()}
    assert {folder: count for folder, count in full.items() if count > FOLDER_ENTRIES} == {}
