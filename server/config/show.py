"""`earshot config`: prints all settings as TOML, each with its source and description."""

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any

import msgspec
from msgspec import inspect

from server.config.load import EffectiveConfig
from server.config.types import describe, kind_of, masked, sentence_of


def show(effective: EffectiveConfig) -> str:
    """Returns TOML that `--config` can read back, except for the masked secrets."""
    struct = inspect.type_info(type(effective.config))
    assert isinstance(struct, inspect.StructType)
    values = msgspec.to_builtins(effective.config)
    return "\n".join(_table_lines(struct, values, (), effective.origins)) + "\n"


def _table_lines(
    struct: inspect.StructType,
    values: Mapping[str, Any],
    section_path: tuple[str, ...],
    origins: Mapping[tuple[str, ...], str],
) -> Iterator[str]:
    """Yields the lines of a table: first its own settings, then its tables, because TOML needs this
    order."""
    sections = []
    for setting in struct.fields:
        path = (*section_path, setting.name)
        kind = kind_of(setting.type)
        if isinstance(kind, inspect.StructType):
            sections.append((path, kind))
            continue
        yield f"# {sentence_of(setting.type)} ({describe(setting.type)}; {_origin(path, origins)})"
        value = masked(values[setting.name], setting.name)
        # TOML has no null: a setting without a value stays a comment.
        yield f"# {setting.name} =" if value is None else f"{setting.name} = {to_toml(value)}"
    for path, kind in sections:
        yield f"\n[{'.'.join(path)}]"
        yield from _table_lines(kind, values[path[-1]], path, origins)


def _origin(path: tuple[str, ...], origins: Mapping[tuple[str, ...], str]) -> str:
    """Returns the source of a setting. A table may have several sources, which are joined with
    commas."""
    matching_origins = [
        origin for setting_path, origin in origins.items() if setting_path[: len(path)] == path
    ]
    return ", ".join(dict.fromkeys(matching_origins)) or "default"


def to_toml(value: object) -> str:
    """Returns a value as TOML. Tables are written inline."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            pairs = ", ".join(
                f"{to_toml(str(key))} = {to_toml(inner)}"
                for key, inner in value.items()
                if inner is not None
            )
            return f"{{ {pairs} }}" if pairs else "{}"
        case list() | tuple():
            return f"[{', '.join(to_toml(inner) for inner in value)}]"
        case _:
            # JSON's escapes are TOML's, except for the slash and DEL.
            text = msgspec.json.encode(str(value)).decode()
            return text.replace("\x7f", "\\u007f")
