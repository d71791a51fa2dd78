"""Private names of aiortc, aioice and pylibsrtp: one folder uses them, one table has them all."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from core.private_names import CALL_NAMES
from tests.repo.files import PACKAGES, python_files
from tests.shared import ROOT

FOLDER = ROOT / "media" / "webrtc" / "aiortc_internals"
TABLE = ROOT / "core" / "private_names.py"

PRIVATE = re.compile(r"_[A-Za-z]\w*")

ATTRIBUTES = {one.attribute for one in CALL_NAMES if one.attribute.startswith("_")}


def private_uses(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that take a private attribute of an object other than `self`, or spell one in a
    text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and not _is_own(node.value):
            name = node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
        else:
            continue
        if PRIVATE.fullmatch(name):
            yield node.lineno, name


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def test_no_other_module_touches_them() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in python_files(*PACKAGES)
        if path != TABLE and not path.is_relative_to(FOLDER)
        for line, name in private_uses(path)
        if name in ATTRIBUTES
    ]
    assert found == []


def test_the_table_has_every_name_that_the_folder_uses_and_no_other() -> None:
    used = {name for path in FOLDER.glob("*.py") for _, name in private_uses(path)}
    assert used == ATTRIBUTES
