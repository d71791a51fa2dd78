"""The examples in CONTRIBUTING.md and docs/plugins.md equal the files that are tested."""

import re
import tomllib
from importlib import import_module
from typing import Any

import msgspec
import pytest

from core.packages.plugins import NAME
from server.config import Config
from tests.plugins.packages import EXAMPLES
from tests.shared import ROOT

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PLUGINS = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")

_FILE = re.compile(r"^`(tests/\S+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_IMPORTED = re.compile(r"`((?:core|engines|pipeline|web)(?:\.\w+)+\.\w+)`")

# Imported here, because one library among them starts a process to find its parts.
PROMISED = {
    name: (import_module(name.rpartition(".")[0]), name.rpartition(".")[2])
    for name in sorted(set(_IMPORTED.findall(CONTRIBUTING + PLUGINS)))
}


def test_the_shown_examples_equal_the_tested_files() -> None:
    shown = dict(_FILE.findall(CONTRIBUTING))
    files = [one for folder in EXAMPLES.values() for one in folder.iterdir()]
    names = {str(one.relative_to(ROOT)) for one in files if one.suffix in (".py", ".toml")}
    assert set(shown) == names
    for name, text in shown.items():
        assert text == (ROOT / name).read_text(encoding="utf-8"), f"{name} differs: copy it again"


def test_the_shown_configurations_can_be_read() -> None:
    shown = [tomllib.loads(text) for text in _TOML.findall(_FILE.sub("", CONTRIBUTING))]
    assert len(shown) == 3
    configs = [msgspec.convert(tables, Config) for tables in shown]
    assert [config.asr.engine for config in configs] == ["beeps", "auto", "auto"]
    assert [list(config.tools.plugins) for config in configs] == [[], ["bins"], []]
    assert [list(config.doors) for config in configs] == [[], [], ["ask"]]


def test_the_examples_use_documented_entry_points() -> None:
    declared: dict[str, Any] = {}
    for folder in EXAMPLES.values():
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        declared |= project["entry-points"]
    (reference,) = _TOML.findall(PLUGINS)
    shown = tomllib.loads(reference)["project"]["entry-points"]
    assert {group: set(names) for group, names in shown.items()} == {
        group: set(names) for group, names in declared.items()
    }
    assert all(NAME.fullmatch(name) for names in shown.values() for name in names)


@pytest.mark.parametrize("name", PROMISED)
def test_a_documented_name_can_be_imported(name: str) -> None:
    module, attribute = PROMISED[name]
    assert hasattr(module, attribute)


def test_there_are_many_documented_names() -> None:
    assert len(PROMISED) > 40
