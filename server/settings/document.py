"""Edits the text of a settings file and shows the difference. Comments and order stay. Pure."""

import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from difflib import unified_diff
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Item, Table

from core.errors import ConfigError
from server.config.load import SettingPath
from server.config.types import MASK, SECRET_TABLES, masked

NEW = f"{MASK} (new)"
"Text in the difference in place of a secret that changes."

SettingChanges = Mapping[SettingPath, Any]
"Setting -> new value. None removes it from the file, so that its default holds."


def edited(text: str, changes: SettingChanges) -> str:
    """Returns the text of a settings file with these values. Only the lines of changed settings
    differ. Raises ConfigError if the text is not TOML, or holds something else in place of a
    table."""
    wanted = _parsed(text)
    try:
        document = tomlkit.parse(text)
        for path, value in changes.items():
            _change(document, path, value)
            _change(wanted, path, value)
        result = tomlkit.dumps(document)
    except TOMLKitError as error:
        raise ConfigError(f"the settings file cannot be edited: {error}") from error
    # The library rewrites the structure of a file; its result is used only if nothing else changed.
    if _without_empty(_parsed(result)) != _without_empty(wanted):
        raise ConfigError("the settings file cannot be edited: write this change into it by hand")
    return result


def difference(before: str, after: str) -> str:
    """Returns what a change of the file would change, as a unified diff without context. Secrets
    are masked, comments behind them left out; comments on lines of their own never appear."""
    old, new = _parsed(before), _parsed(after)
    changed = {path for path in _paths(new) if _at(old, path) != _at(new, path)}
    now, then = _masked(before, frozenset()), _masked(after, changed)
    lines = unified_diff(now.splitlines(), then.splitlines(), "now", "then", n=0, lineterm="")
    return "\n".join(lines)


def _change(table: MutableMapping[str, object], path: SettingPath, value: object) -> None:
    for name in path[:-1]:
        inner = table.get(name)
        if inner is None:
            if value is None:
                return
            table[name] = _empty_table(table)
            inner = table[name]
        if not isinstance(inner, MutableMapping):
            raise ConfigError(f"config.{'.'.join(path)}: {name} is no table in the file")
        table = inner
    if value is None:
        table.pop(path[-1], None)
    else:
        table[path[-1]] = value


def _empty_table(inside: MutableMapping[str, object]) -> Any:
    """Returns a new table in the style of the table that it stands in."""
    if isinstance(inside, InlineTable):
        return tomlkit.inline_table()
    return tomlkit.table() if hasattr(inside, "as_string") else {}


def _parsed(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the settings file is not TOML: {error}") from error


def _without_empty(table: Mapping[str, object]) -> dict[str, object]:
    """Returns the table without empty tables in it, which set nothing."""
    kept = {k: _without_empty(v) if isinstance(v, Mapping) else v for k, v in table.items()}
    return {k: v for k, v in kept.items() if v != {}}


def _paths(table: Mapping[str, object], at: SettingPath = ()) -> Iterator[SettingPath]:
    """Yields the paths of all values, through tables."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _paths(value, (*at, name))
        else:
            yield (*at, name)


def _at(table: object, path: SettingPath) -> Any:
    for name in path:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table


def _masked(text: str, changed: frozenset[SettingPath] | set[SettingPath]) -> str:
    """Returns the text with every secret replaced. `changed`: secrets that are shown as new."""
    document = tomlkit.parse(text)
    values = document.unwrap()
    for path in list(_paths(values)):
        value = _at(values, path)
        is_hidden = bool(value) and bool(set(path[:-1]) & SECRET_TABLES)
        shown = MASK if is_hidden else masked(value, path[-1])
        if shown == value:
            continue
        holder: Any = document
        for name in path[:-1]:
            holder = holder[name]
            _drop_comment(holder)
        _drop_comment(holder[path[-1]])
        holder[path[-1]] = NEW if path in changed and shown == MASK else shown
    return tomlkit.dumps(document)


def _drop_comment(item: object) -> None:
    """Removes the comment on the line of a value, which may hold an older secret."""
    if isinstance(item, Item) and not isinstance(item, Table):
        item.trivia.comment = ""
