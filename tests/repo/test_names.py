"""A class name stands for one class in the whole tree."""

import ast
from collections import defaultdict

import pytest

from tests.shared import ROOT

FOLDERS = (
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
)

EVERY_ENGINE_HAS = "Settings"
"The one class name that stands for several classes: the registry looks for it in each engine."


@pytest.mark.many
def test_a_class_name_stands_for_one_class() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert len(places) > 900
    several = {name: where for name, where in places.items() if len(where) > 1}
    several.pop(EVERY_ENGINE_HAS)
    assert not several, f"choose another name for all but one of each: {several}"
