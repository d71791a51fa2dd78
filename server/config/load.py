"""Reads defaults, one TOML file, `EARSHOT_*` variables and flags into one checked `Config`. Later
sources win. An unknown key or a value out of range is an error that names the key."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, reduce
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from core.errors import ConfigError
from server.config import Config
from server.config.types import describe, is_secret, kind_of, masked

ENV_PREFIX = "EARSHOT_"
DEFAULT_FILE = "earshot.toml"
NOT_SETTINGS = ("EARSHOT_CONFIG", "EARSHOT_KEY")
"""Variables that are no settings: the path of the file, and the key for `talk`. `EARSHOT_CI_*` of
test runs are none either."""
FLAGS: Mapping[str, tuple[str, ...]] = {
    "--host": ("server", "host"),
    "--port": ("server", "port"),
    "--tls": ("server", "tls"),
    "--log-level": ("log", "level"),
}
"Command line options that set a setting."
SHORT_SECTIONS = ("server", "paths")
"Sections that a variable may leave out: EARSHOT_PORT means EARSHOT_SERVER__PORT."

SettingPath = tuple[str, ...]
"Names of the sections and of the setting, such as ('server', 'port')."


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """Configuration in force, with the source of each setting that is not a default."""

    config: Config
    origins: Mapping[SettingPath, str]
    """Setting -> source: ('server', 'port') -> `file:earshot.toml`, `env:EARSHOT_PORT` or
    `flag:--port`."""


@dataclass(slots=True)
class _ConfigDraft:
    """Values read so far, with their sources and the problems found."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[SettingPath, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def put(self, path: SettingPath, value: Any, origin: str) -> None:
        table = self.values
        for name in path[:-1]:
            table = table.setdefault(name, {})
        table[path[-1]] = value
        self.origins[path] = origin


def load(
    environ: Mapping[str, str],
    *,
    file: Path | None = None,
    flags: Mapping[str, str] | None = None,
) -> EffectiveConfig:
    """Reads all sources and checks the values. `environ`: environment variables. `file`: TOML file;
    None: the one in EARSHOT_CONFIG or ./earshot.toml. `flags`: text of command line options, such
    as `--port`. Raises ConfigError with one line per problem."""
    draft = _ConfigDraft()
    if state_home := environ.get("XDG_STATE_HOME"):
        _add_leaf(draft, ("paths", "state_dir"), f"{state_home}/earshot", "env:XDG_STATE_HOME")
    _add_file(draft, find_file(environ, file))
    _add_environment(draft, environ)
    for flag, value in (flags or {}).items():
        _add_leaf(draft, FLAGS[flag], value, f"flag:{flag}")
    if draft.problems:
        raise ConfigError("\n".join(draft.problems))
    try:
        config = msgspec.convert(draft.values, Config)
    except msgspec.ValidationError as error:  # a variable set a key inside an open table
        raise ConfigError(f"config: {error}") from error
    return EffectiveConfig(config, draft.origins)


def find_file(environ: Mapping[str, str], file: Path | None) -> Path | None:
    """Returns the file to read. Only a file that was named must exist."""
    if file is not None:
        return file
    if named := environ.get("EARSHOT_CONFIG"):
        return Path(named)
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def _add_file(draft: _ConfigDraft, file: Path | None) -> None:
    if file is None:
        return
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error
    for path, value in _leaves(draft, tables, _struct(Config), (), "config"):
        _add_leaf(draft, path, value, f"file:{file}")


def _leaves(
    draft: _ConfigDraft,
    table: Mapping[str, Any],
    struct: inspect.StructType,
    at: SettingPath,
    label: str,
) -> Iterator[tuple[SettingPath, Any]]:
    """Yields all settings in a table, sections unfolded. Notes unknown keys and wrong sections."""
    fields = {f.name: kind_of(f.type) for f in struct.fields}
    for name, value in table.items():
        kind = fields.get(name)
        if kind is None:
            draft.problems.append(f"{label}: unknown key {name!r}{_guess(name, fields)}")
        elif not isinstance(kind, inspect.StructType):
            yield (*at, name), value
        elif isinstance(value, Mapping):
            yield from _leaves(draft, value, kind, (*at, name), f"{label}.{name}")
        else:
            draft.problems.append(f"{label}.{name}: expected a table, got {value!r}")


def _add_environment(draft: _ConfigDraft, environ: Mapping[str, str]) -> None:
    """Adds the settings of all `EARSHOT_*` variables. Unknown ones are noted as problems."""
    for variable in sorted(environ):
        if not variable.startswith(ENV_PREFIX) or variable in NOT_SETTINGS:
            continue
        if variable.startswith("EARSHOT_CI_"):
            continue
        path = _path_of(tuple(variable.removeprefix(ENV_PREFIX).lower().split("__")))
        if path is None:
            draft.problems.append(f"{variable}: unknown setting{_guess(variable, _variables())}")
        else:
            _add_leaf(draft, path, environ[variable], f"env:{variable}")


def _path_of(path: SettingPath) -> SettingPath | None:
    """Returns the setting that a variable's name means, or None."""
    for candidate in (path, *((section, *path) for section in SHORT_SECTIONS)):
        kind, rest = _resolve(candidate)
        is_setting = kind is not None and not isinstance(kind, inspect.StructType)
        if is_setting and (not rest or isinstance(kind, inspect.DictType)):
            return candidate
    return None


def _resolve(path: SettingPath) -> tuple[inspect.Type | None, SettingPath]:
    """Returns the type of the setting on this path, and the part of the path inside its value."""
    kind: inspect.Type | None = _struct(Config)
    for depth, name in enumerate(path):
        if not isinstance(kind, inspect.StructType):
            return kind, path[depth:]
        kind = next((kind_of(f.type) for f in kind.fields if f.name == name), None)
    return kind, ()


def _annotated(path: SettingPath) -> inspect.Type:
    """Returns the type of a setting together with its description."""
    section, _ = _resolve(path[:-1])
    assert isinstance(section, inspect.StructType)
    return next(f.type for f in section.fields if f.name == path[-1])


def _add_leaf(draft: _ConfigDraft, path: SettingPath, value: Any, origin: str) -> None:
    """Checks one value against its setting's type. Text from variables is parsed as that type."""
    kind, inside = _resolve(path)
    assert kind is not None, f"no such setting: {path}"
    source, _, name = origin.partition(":")
    is_text = source in ("env", "flag")
    label = name if is_text else ".".join(("config", *path))
    if is_text and not _is_unicode(value):
        draft.problems.append(f"{label}: not UTF-8")
        return
    if inside:  # a key of an open table, e.g. EARSHOT_ASR__OPTIONS__MODEL
        draft.put(path, _as_toml(value), origin)
        return
    if is_text:
        value = _from_text(kind, value)
    try:
        # Checked inside an otherwise empty Config, so that ranges and cross-checks apply.
        checked = msgspec.convert(_nested(path, value), Config, strict=not is_text)
    except msgspec.ValidationError as error:
        draft.problems.append(f"{label}{_what(error, path, value)}")
    except ConfigError as error:  # a check across several fields of a table
        draft.problems.append(f"config.{error}")
    else:
        draft.put(path, msgspec.to_builtins(reduce(getattr, path, checked)), origin)


def _is_unicode(text: str) -> bool:
    """Returns False if a variable held bytes that are no UTF-8, which Python marks as in PEP
    383."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _from_text(kind: inspect.Type, text: str) -> Any:
    match kind:
        case inspect.VarTupleType() | inspect.ListType():
            return [part.strip() for part in text.split(",") if part.strip()]
        case inspect.DictType():
            return _as_toml(text)
        case _:
            return text


def _as_toml(text: Any) -> Any:
    """Parses text as a TOML value: number, boolean, list or table. Returns any other text as it
    is."""
    if not isinstance(text, str):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def _nested(path: SettingPath, value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _what(error: msgspec.ValidationError, path: SettingPath, value: Any) -> str:
    """Returns the text of a problem: `: expected int in [0, 65535], got 'x'`, or the place in the
    value."""
    message, _, where = str(error).partition(" - at `$")
    inside = where.rstrip("`").removeprefix("." + ".".join(path))
    if not inside:
        shown = "something else" if is_secret(path[-1]) else repr(masked(value, path[-1]))
        return f": expected {describe(_annotated(path))}, got {shown}"
    message = message.replace("Object contains unknown field", "unknown key").replace("`", "'")
    return f"{inside}: {message[:1].lower()}{message[1:]}"


@cache
def _struct(cls: type) -> inspect.StructType:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return info


def _variables() -> list[str]:
    """Lists the names of all variables that set something, the short forms included."""
    return [
        ENV_PREFIX + "__".join(part).upper()
        for path in setting_paths()
        for part in ([path, path[1:]] if path[0] in SHORT_SECTIONS else [path])
    ]


def setting_paths(
    struct: inspect.StructType | None = None, at: SettingPath = ()
) -> Iterator[SettingPath]:
    """Yields the paths of all settings."""
    for f in (struct or _struct(Config)).fields:
        kind = kind_of(f.type)
        if isinstance(kind, inspect.StructType):
            yield from setting_paths(kind, (*at, f.name))
        else:
            yield (*at, f.name)


def _guess(name: str, known: Mapping[str, Any] | list[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else f" (known: {', '.join(sorted(known))})"
