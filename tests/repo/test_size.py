"""A hard limit for the length of files and functions."""

import ast
import warnings

import pytest

from tests.repo.files import PACKAGES, page_files, python_files
from tests.shared import ROOT

pytestmark = pytest.mark.live

FILE_LINES = 300
FILE_LINES_HARD = 600
FUNCTION_LINES = 40
FUNCTION_LINES_HARD = 80


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
