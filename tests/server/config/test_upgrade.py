"""A configuration file of version 0.1 is read by the present version, and means the same."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from server.config.load import load

FILE = Path(__file__).with_name("earshot-0.1.toml")


def _settings(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _settings(value, (*path, name))
        else:
            yield (*path, name)


def test_every_setting_is_still_known_and_has_its_value() -> None:
    written = tomllib.loads(FILE.read_text(encoding="utf-8"))
    loaded = load({"HOME": "/nonexistent"}, file=FILE)
    config = to_builtins(loaded.config)
    paths = list(_settings(written))
    assert len(paths) > 100
    for path in paths:
        value: Any = reduce(lambda table, name: table[name], path, config)
        expected: Any = reduce(lambda table, name: table[name], path, written)
        assert (list(value) if isinstance(value, tuple) else value) == expected, ".".join(path)
        assert loaded.origins[path] == f"file:{FILE}"
