"""Reads defaults, one TOML file, `EARSHOT_*` variables and flags into one checked `Config`. Later
sources win. An unknown key or a value out of range is an error that names the key."""

import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
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
CATALOGUE_FILE = "models.toml"
"File with the user's models, beside the configuration file."
NOT_SETTINGS = ("EARSHOT_CONFIG", "EARSHOT_KEY")
"""Variables that are not settings: the path of the file, and the key for `talk`. The variables
`EARSHOT_CI_*` of test runs are not settings either."""
SettingPath = tuple[str, ...]
"Names of the sections and of the setting, such as ('server', 'port')."
FLAGS: Mapping[str, SettingPath] = {
    "--host": ("server", "host"),
    "--port": ("server", "port"),
    "--tls": ("server", "tls"),
    "--log-level": ("log", "level"),
    "--models": ("models", "preload"),
    "--gateways": ("server", "gateways"),
}
"Command line options that set a setting."
REPLACED_NAMES: Mapping[str, SettingPath] = {
    "MODEL_NAMES": ("models", "preload"),
    "MODELS": ("models", "preload"),
    "MAX_AUDIO_BYTES": ("server", "max_upload_bytes"),
}
"""Variables of the Simple Inference Server that are read, too -> setting. A variable of ours for
the same setting wins."""
DOTENV_FILE = ".env"
DOTENV_PREFIXES = (ENV_PREFIX, "HF_")
"Beginnings of the names that count in that file: the settings', and those of the hub of models."
SHORT_SECTIONS = ("server", "paths")
"Sections that a variable may leave out: EARSHOT_PORT means EARSHOT_SERVER__PORT."


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
    "Settings read so far, as nested tables."
    origins: dict[SettingPath, str] = field(default_factory=dict)
    "Setting -> source, as in `EffectiveConfig`."
    problems: list[str] = field(default_factory=list)
    "One line for each problem, for the user."

    def put(self, path: SettingPath, value: Any, origin: str) -> None:
        """Sets one setting and its source. A later source replaces an earlier one."""
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
    text: str | None = None,
) -> EffectiveConfig:
    """Reads all sources and checks the values. `environ`: environment variables. `file`: TOML file;
    None: the one in EARSHOT_CONFIG or ./earshot.toml. `flags`: text of command line options, such
    as `--port`. `text`: content to read instead of the file's. Raises ConfigError with one line
    per problem."""
    draft = _ConfigDraft()
    if state_home := environ.get("XDG_STATE_HOME"):
        _add_setting(draft, ("paths", "state_dir"), f"{state_home}/earshot", "env:XDG_STATE_HOME")
    config_file = find_file(environ, file)
    if config_file is not None and (catalogue := config_file.with_name(CATALOGUE_FILE)).is_file():
        _add_setting(draft, ("models", "catalogue"), str(catalogue), f"file:{catalogue}")
    _add_file(draft, config_file, text)
    for variable, path in REPLACED_NAMES.items():
        if value := environ.get(variable):
            _add_setting(draft, path, value, f"env:{variable}")
    _add_environment(draft, environ)
    for flag, value in (flags or {}).items():
        _add_setting(draft, FLAGS[flag], value, f"flag:{flag}")
    if draft.problems:
        raise ConfigError("\n".join(draft.problems))
    try:
        config = msgspec.convert(draft.values, Config)
    except msgspec.ValidationError as error:  # keys of open tables, which may have any name
        raise ConfigError(f"config: {error}") from error
    return EffectiveConfig(config, draft.origins)


def add_dotenv(file: Path, environ: MutableMapping[str, str]) -> None:
    """Adds the variables of a `.env` file to the environment, without replacing any. Variables of
    other programs are left out. Raises ConfigError for a line that is no `NAME=VALUE`."""
    if not file.is_file():
        return
    from dotenv.parser import parse_stream  # few have such a file, and every command starts here

    try:
        with file.open(encoding="utf-8") as lines:
            bindings = list(parse_stream(lines))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    for binding in bindings:
        if binding.error:
            raise ConfigError(f"{file}: line {binding.original.line}: expected NAME=VALUE")
        name = binding.key or ""
        is_ours = name.startswith(DOTENV_PREFIXES) or name in REPLACED_NAMES
        if is_ours and binding.value is not None:
            environ.setdefault(name, binding.value)


def find_file(environ: Mapping[str, str], file: Path | None) -> Path | None:
    """Returns the file to read; None if there is none. A file that was named is returned even if it
    does not exist: reading it then reports the error."""
    if file is not None:
        return file
    if path := environ.get("EARSHOT_CONFIG"):
        return Path(path)
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def _add_file(draft: _ConfigDraft, file: Path | None, text: str | None) -> None:
    if file is None:
        return
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8") if text is None else text)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error
    for path, value in _settings_in_table(draft, tables, _struct_type(Config), (), "config"):
        _add_setting(draft, path, value, f"file:{file}")


def _settings_in_table(
    draft: _ConfigDraft,
    table: Mapping[str, object],
    struct: inspect.StructType,
    section_path: SettingPath,
    label: str,
) -> Iterator[tuple[SettingPath, Any]]:
    """Yields (path, value) of every setting in a table and in its sections. Unknown keys and values
    in the place of a section become problems of the draft. `section_path`: path of the table.
    `label`: the same path for messages."""
    fields = {info.name: kind_of(info.type) for info in struct.fields}
    for name, value in table.items():
        kind = fields.get(name)
        if kind is None:
            draft.problems.append(f"{label}: unknown key {name!r}{_suggestion(name, fields)}")
        elif not isinstance(kind, inspect.StructType):
            yield (*section_path, name), value
        elif isinstance(value, Mapping):
            yield from _settings_in_table(
                draft, value, kind, (*section_path, name), f"{label}.{name}"
            )
        else:
            draft.problems.append(f"{label}.{name}: expected a table, got {value!r}")


def _add_environment(draft: _ConfigDraft, environ: Mapping[str, str]) -> None:
    """Adds the settings of all `EARSHOT_*` variables. Unknown variables become problems of the
    draft."""
    for variable in sorted(environ):
        if not variable.startswith(ENV_PREFIX) or variable in NOT_SETTINGS:
            continue
        if variable.startswith("EARSHOT_CI_"):
            continue
        path = _find_setting(tuple(variable.removeprefix(ENV_PREFIX).lower().split("__")))
        if path is None:
            draft.problems.append(
                f"{variable}: unknown setting{_suggestion(variable, _variable_names())}"
            )
        else:
            _add_setting(draft, path, environ[variable], f"env:{variable}")


def _find_setting(path: SettingPath) -> SettingPath | None:
    """Returns the setting that a variable's name means, or None."""
    for candidate in (path, *((section, *path) for section in SHORT_SECTIONS)):
        kind, rest = _resolve(candidate)
        is_setting = kind is not None and not isinstance(kind, inspect.StructType)
        if is_setting and (not rest or isinstance(kind, inspect.DictType)):
            return candidate
    return None


def _resolve(path: SettingPath) -> tuple[inspect.Type | None, SettingPath]:
    """Returns the type of the setting on this path, and the part of the path inside its value."""
    kind: inspect.Type | None = _struct_type(Config)
    for depth, name in enumerate(path):
        if not isinstance(kind, inspect.StructType):
            return kind, path[depth:]
        kind = next((kind_of(info.type) for info in kind.fields if info.name == name), None)
    return kind, ()


def _annotated_type(path: SettingPath) -> inspect.Type:
    """Returns the type of a setting together with its description."""
    section, _ = _resolve(path[:-1])
    assert isinstance(section, inspect.StructType)
    return next(info.type for info in section.fields if info.name == path[-1])


def _add_setting(draft: _ConfigDraft, path: SettingPath, value: Any, origin: str) -> None:
    """Checks one value against the type of its setting, and adds it to the draft, or a problem.
    Text of a variable or a flag is parsed as that type. `origin`: see `EffectiveConfig.origins`."""
    kind, inner_path = _resolve(path)
    assert kind is not None, f"no such setting: {path}"
    origin_kind, _, name = origin.partition(":")
    is_text = origin_kind in ("env", "flag")
    label = name if is_text else ".".join(("config", *path))
    if is_text and not _is_unicode(value):
        draft.problems.append(f"{label}: not UTF-8")
        return
    if inner_path:  # a key of an open table, e.g. EARSHOT_ASR__OPTIONS__MODEL
        draft.put(path, _entry_value(kind, inner_path, value), origin)
        return
    if is_text:
        value = _from_text(kind, value)
    try:
        # Checked inside an otherwise empty Config, so that ranges and cross-checks apply.
        config = msgspec.convert(_nested_tables(path, value), Config, strict=not is_text)
    except msgspec.ValidationError as error:
        draft.problems.append(f"{label}{_problem_text(error, path, value)}")
    except ConfigError as error:  # a check across several fields of a table
        draft.problems.append(f"config.{error}")
    else:
        draft.put(path, msgspec.to_builtins(reduce(getattr, path, config)), origin)


def _is_unicode(text: str) -> bool:
    """Returns False if a variable held bytes that are not UTF-8. Python puts surrogates in their
    place (PEP 383)."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _from_text(kind: inspect.Type, text: str) -> Any:
    """Returns the value of a variable or flag in the form that msgspec can convert to the type."""
    match kind:
        case inspect.VarTupleType() | inspect.ListType():
            parsed = _parse_toml_value(text)
            is_list = isinstance(parsed, list)
            return parsed if is_list else [part.strip() for part in text.split(",") if part.strip()]
        case inspect.DictType():
            return _parse_toml_value(text)
        case _:
            return text


def setting_value(path: SettingPath, text: str) -> Any:
    """Returns the value that `text` from a command line means for a setting. Raises ConfigError for
    an unknown setting."""
    kind, inside = _resolve(path)
    if kind is None or isinstance(kind, inspect.StructType):
        name = ".".join(path)
        known = [".".join(path) for path in setting_paths()]
        raise ConfigError(f"{name}: unknown setting{_suggestion(name, known)}")
    if inside:
        return _entry_value(kind, inside, text)
    if not isinstance(kind, inspect.StrType | inspect.LiteralType):
        return _parse_toml_value(_from_text(kind, text))
    return text


def _entry_value(table: inspect.Type, path: SettingPath, value: object) -> Any:
    """Returns what text means for an entry of an open table, such as `tools.mcp.files.args`. It is
    TOML; where the type of the entry is known, a list may also be written with commas, and text
    needs no quotes."""
    if not isinstance(value, str):
        return value
    match _entry_type(table, path):
        case inspect.VarTupleType() | inspect.ListType() as kind:
            return _from_text(kind, value)
        case inspect.StrType():
            parsed = _parse_toml_value(value)
            return parsed if isinstance(parsed, str) else value
        case _:
            return _parse_toml_value(value)


def _entry_type(table: inspect.Type, path: SettingPath) -> inspect.Type | None:
    """Returns the type of an entry of an open table; None if only an engine or a plugin knows."""
    kind: inspect.Type | None = table
    for name in path:
        match kind:
            case inspect.DictType():
                kind = kind_of(kind.value_type)
            case inspect.StructType():
                kind = next(
                    (kind_of(member.type) for member in kind.fields if member.name == name), None
                )
            case _:
                return None
    return kind


def _parse_toml_value(text: object) -> Any:
    """Parses text as a TOML value: number, boolean, list or table. Returns any other text as it
    is."""
    if not isinstance(text, str):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def _nested_tables(path: SettingPath, value: object) -> Any:
    """Returns the value inside one table for each name of the path."""
    for name in reversed(path):
        value = {name: value}
    return value


def _problem_text(error: msgspec.ValidationError, path: SettingPath, value: object) -> str:
    """Returns what follows the setting's name in a problem: `: expected int in [0, 65535], got
    'x'`. If only a part of the value is wrong, its place comes first."""
    message, _, location = str(error).partition(" - at `$")
    inner_location = location.rstrip("`").removeprefix("." + ".".join(path))
    if not inner_location:
        value_text = "something else" if is_secret(path[-1]) else repr(masked(value, path[-1]))
        return f": expected {describe(_annotated_type(path))}, got {value_text}"
    message = message.replace("Object contains unknown field", "unknown key").replace("`", "'")
    return f"{inner_location}: {message[:1].lower()}{message[1:]}"


@cache
def _struct_type(cls: type) -> inspect.StructType:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return info


def _variable_names() -> list[str]:
    """Lists the names of all variables that set a setting, with the short forms."""
    return [
        ENV_PREFIX + "__".join(names).upper()
        for path in setting_paths()
        for names in ([path, path[1:]] if path[0] in SHORT_SECTIONS else [path])
    ]


def setting_paths(
    struct: inspect.StructType | None = None, section_path: SettingPath = ()
) -> Iterator[SettingPath]:
    """Yields the paths of all settings."""
    for info in (struct or _struct_type(Config)).fields:
        kind = kind_of(info.type)
        if isinstance(kind, inspect.StructType):
            yield from setting_paths(kind, (*section_path, info.name))
        else:
            yield (*section_path, info.name)


def _suggestion(name: str, known: Mapping[str, object] | list[str]) -> str:
    matches = get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {matches[0]}?)" if matches else f" (known: {', '.join(sorted(known))})"
