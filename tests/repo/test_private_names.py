"""Private names of libraries: aiortc's are used in one folder, and one table has them all."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp.web import AppRunner, RequestHandler, Response, WebSocketResponse

from core.packages.private_names import CALL_NAMES, HTTP_NAMES
from tests.repo.files import PACKAGES, python_files
from tests.shared import ROOT

FOLDER = ROOT / "media" / "webrtc" / "aiortc_internals"
TABLE = ROOT / "core" / "packages" / "private_names.py"

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


@pytest.mark.many
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


OF_AIOHTTP = (RequestHandler, AppRunner, Response, WebSocketResponse)
"Classes of aiohttp of which we have subclasses."


@pytest.mark.many
def test_the_table_has_every_private_name_of_aiohttp_that_a_subclass_uses() -> None:
    """In a subclass a private name of `self` may be aiohttp's."""
    known = {name for kind in OF_AIOHTTP for base in kind.__mro__ for name in _names_of(base)}
    own = {"_body"}  # ours in a connection; aiohttp has it in a response
    used: set[str] = set()
    for path in python_files("server", "signaling", "web", "devices"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and {ast.unparse(one) for one in node.bases} & {
                f"aioweb.{kind.__name__}" for kind in OF_AIOHTTP
            }:
                used |= _private_in(node) & known
    assert used - own == {one.attribute for one in HTTP_NAMES} - {"_client_max_size"}


def _names_of(kind: type) -> set[str]:
    """Names of a class: its own, and those that its `__init__` sets."""
    code = getattr(vars(kind).get("__init__"), "__code__", None)
    return {*vars(kind), *(code.co_names if code else ())}


def _private_in(node: ast.ClassDef) -> set[str]:
    names = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    names |= {one.name for one in ast.walk(node) if isinstance(one, ast.AsyncFunctionDef)}
    names |= {one.name for one in ast.walk(node) if isinstance(one, ast.FunctionDef)}
    return {name for name in names if PRIVATE.fullmatch(name)}
