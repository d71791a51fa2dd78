"""Describes the settings of the page's form, from the types of the configuration. Pure.

The page draws its form from these descriptions, so a new setting of a listed section appears there
by itself.
"""

import ast
import inspect as source_inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from textwrap import dedent
from typing import Any, Literal

import msgspec
from msgspec import Struct, inspect

from core.errors import ConfigError
from engines.llm.hybrid import Settings as HybridSettings
from engines.llm.openai.settings import Settings as OpenAiSettings
from server.config import Config
from server.config.load import EffectiveConfig, SettingPath
from server.config.types import describe, is_secret, kind_of, sentence_of

FieldType = Literal["text", "long_text", "secret", "integer", "number", "boolean", "choice", "list"]
"Kind of form field that a setting needs."

Applies = Literal["new_sessions", "restart"]
"When a saved value takes effect: with the next session, or after a restart of the server."

ON_PAGE: Sequence[SettingPath] = (
    ("language",),
    ("assistant",),
    ("asr", "model"),
    ("asr", "no_speech"),
    ("llm", "engine"),
    ("llm", "options"),
    ("tts", "engine"),
    ("turn",),
    ("models", "strict"),
    ("models", "unload_after_s"),
    ("home_assistant", "url"),
    ("home_assistant", "token"),
    ("home_assistant", "verify_tls"),
    ("home_assistant", "use"),
    ("home_assistant", "agent_id"),
    ("home_assistant", "language"),
)
"""Sections and settings that the page may change. All others need access to the machine, because
they could lock the owner out (address, port, TLS, key), run programs or read files there (modules,
MCP commands, paths), or record what people say (log and trace)."""

COMMON: Sequence[str] = (
    "assistant.voice",
    "assistant.speed",
    "language",
    "asr.model",
    "llm.engine",
    "assistant.wake_word",
    "assistant.echo",
    "assistant.instructions",
)
"Settings that the form shows first. The options of the language model stand behind its engine."

LIVE: Sequence[SettingPath] = (("assistant",), ("turn",))
"Sections that new sessions take over without a restart."
FROM_START: Sequence[str] = ("assistant.default_instructions", "turn.max_drafts")
"Settings of these sections that the whole server shares, so that they need a restart."

OPTION_TYPES: Mapping[tuple[str, str], type[Struct]] = {
    ("llm", "openai"): OpenAiSettings,
    ("llm", "hybrid"): HybridSettings,
}
"""(kind, engine) -> type of its options, for engines whose options the page may change. Options of
other engines name folders, programs or code on the server's machine."""
COMMON_OPTIONS = ("base_url", "model", "api_key")
"Options of a language model that the form shows first."
CLOSED_OPTIONS = ("api_key_file", "extra_body")
"Options that the page does not show: a file on the server, and a table of any content."
LONG_TEXT_CHARS = 1000
"Text that may be longer than this gets a field of several lines."

UNITS: Mapping[str, str] = {
    "api": "API",
    "url": "URL",
    "tls": "TLS",
    "id": "ID",
    "ms": "(ms)",
    "s": "(s)",
}
"Parts of names that are not spelled as words."


class SettingOption(Struct, frozen=True):
    """One allowed value of a setting."""

    value: str
    label: str


class SettingField(Struct, frozen=True, omit_defaults=True):
    """One setting as a form field."""

    key: str
    "Dotted name, as in the settings file: `assistant.voice`."
    group: str
    "Section that it stands in."
    label: str
    help: str
    "Sentence in English that explains the setting."
    type: FieldType
    allowed: str
    "Which values are allowed, in words."
    applies: Applies
    source: str
    """Where the value comes from: `default`, `file`, or the name of the environment variable or the
    command line option that overrides the file."""
    value: Any = None
    "Value in force after a restart. None: not set, or a secret."
    default: Any = None
    is_set: bool = False
    "True if the settings file or an override sets it. Of a secret the form shows nothing else."
    is_locked: bool = False
    "True: an environment variable or an option overrides the file, so that it cannot be changed."
    is_common: bool = False
    is_optional: bool = False
    "True: it may have no value."
    is_pending: bool = False
    "True: the file has another value than the running server, which needs a restart."
    choices: tuple[SettingOption, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    max_length: int | None = None


@dataclass(frozen=True, slots=True)
class SettingNode:
    """A setting in the tree of types: where it stands, and what it is."""

    path: SettingPath
    type: inspect.Type
    help: str
    default: object

    @property
    def key(self) -> str:
        return ".".join(self.path)


def setting_fields(
    effective: EffectiveConfig,
    choices: Mapping[str, Sequence[SettingOption]],
    running: Config | None = None,
) -> tuple[SettingField, ...]:
    """Describes every setting of the page, the common ones first. `choices`: allowed values of
    settings that depend on what is installed. `running`: the configuration of the running server;
    None: there is none."""
    values = msgspec.to_builtins(effective.config)
    running_values = msgspec.to_builtins(running) if running is not None else None
    found = [
        _field(node, effective, values, running_values, choices) for node in page_settings(values)
    ]
    order = {key: number for number, key in enumerate(COMMON)}
    model = order["llm.engine"]

    def rank(field: SettingField) -> float:
        is_option = field.key.startswith("llm.options.") and field.is_common
        return model + 0.5 if is_option else order.get(field.key, len(order))

    return tuple(sorted(found, key=rank))


def page_settings(values: Mapping[str, object]) -> Iterator[SettingNode]:
    """Yields the settings that the page may change in a configuration with these values: the
    options of an engine depend on which engine is chosen."""
    for node in _nodes(Config, (), values, ""):
        if any(node.path[: len(part)] == part for part in ON_PAGE):
            yield node


def value_at(values: Mapping[str, object], path: SettingPath) -> object:
    """Returns a value of nested tables, or None."""
    found: object = values
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def applies_of(key: str) -> Applies:
    """Returns when a change of this setting takes effect."""
    path = tuple(key.split("."))
    is_live = any(path[: len(part)] == part for part in LIVE) and key not in FROM_START
    return "new_sessions" if is_live else "restart"


def override_of(path: SettingPath, effective: EffectiveConfig) -> str:
    """Returns the environment variable or option that overrides a setting or a part of it; empty if
    the file decides."""
    for known, origin in effective.origins.items():
        kind, _, name = origin.partition(":")
        shared = min(len(known), len(path))
        if kind in ("env", "flag") and known[:shared] == path[:shared]:
            return name
    return ""


def _nodes(
    cls: type[Struct], at: SettingPath, values: Mapping[str, object], kind: str
) -> Iterator[SettingNode]:
    """Yields the settings of a table. `kind`: the kind of engine that the table configures."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    docs = field_docs(cls)
    defaults = {field.name: field.default for field in info.fields}
    for field in info.fields:
        path = (*at, field.name)
        inner = kind_of(field.type)
        value = values.get(field.name)
        inside = value if isinstance(value, Mapping) else {}
        if isinstance(inner, inspect.StructType):
            yield from _nodes(inner.cls, path, inside, kind or field.name)
        elif isinstance(inner, inspect.DictType):
            engine = values.get("engine", defaults.get("engine"))
            options = OPTION_TYPES.get((kind, str(engine)))
            if field.name == "options" and options is not None:
                yield from _nodes(options, path, inside, kind)
        elif field.name not in CLOSED_OPTIONS:
            default = None if field.default is msgspec.NODEFAULT else field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            help_text = sentence_of(field.type) or docs.get(field.name, "")
            yield SettingNode(path, field.type, help_text, msgspec.to_builtins(default))


def _field(
    node: SettingNode,
    effective: EffectiveConfig,
    values: Mapping[str, object],
    running_values: Mapping[str, object] | None,
    choices: Mapping[str, Sequence[SettingOption]],
) -> SettingField:
    kind, is_optional = _without_none(node.type)
    override = override_of(node.path, effective)
    set_value = value_at(values, node.path)
    is_set = set_value is not None and any(
        node.path[: len(known)] == known for known in effective.origins
    )
    value = node.default if set_value is None else set_value
    options = _options(kind, choices.get(node.key, ()), value)
    field_type = _type_of(node.path[-1], kind, options)
    is_closed = field_type == "secret"
    return SettingField(
        key=node.key,
        group=node.path[0] if len(node.path) > 1 else "",
        label=label_of(node.path[-1]),
        help=node.help,
        type=field_type,
        allowed=describe(node.type),
        applies=applies_of(node.key),
        source=override or ("file" if is_set else "default"),
        value=None if is_closed else value,
        default=None if is_closed else node.default,
        is_set=bool(value) if is_closed else is_set,
        is_locked=bool(override),
        is_common=node.key in COMMON or _is_common_option(node.path),
        is_optional=is_optional,
        is_pending=running_values is not None
        and value != _or_default(value_at(running_values, node.path), node.default),
        choices=options,
        minimum=_bound(kind, "ge", "gt"),
        maximum=_bound(kind, "le", "lt"),
        max_length=getattr(kind, "max_length", None),
    )


def _is_common_option(path: SettingPath) -> bool:
    return path[:2] == ("llm", "options") and path[-1] in COMMON_OPTIONS


def _or_default(value: object, default: object) -> object:
    return default if value is None else value


def _without_none(kind: inspect.Type) -> tuple[inspect.Type, bool]:
    """Returns the type, and whether the setting may also have no value."""
    inner = kind_of(kind)
    if not isinstance(inner, inspect.UnionType):
        return inner, False
    others = [
        kind_of(option)
        for option in inner.types
        if not isinstance(kind_of(option), inspect.NoneType)
    ]
    return others[0], len(others) < len(inner.types)


def _options(
    kind: inspect.Type, known: Sequence[SettingOption], value: object
) -> tuple[SettingOption, ...]:
    """Returns the allowed values. The present one is always among them."""
    if isinstance(kind, inspect.LiteralType):
        return tuple(SettingOption(str(literal), str(literal)) for literal in kind.values)
    if known and not any(option.value == value for option in known):
        return (*known, SettingOption(str(value), str(value)))
    return tuple(known)


def _type_of(name: str, kind: inspect.Type, options: Sequence[SettingOption]) -> FieldType:
    if options:
        return "choice"
    match kind:
        case inspect.BoolType():
            return "boolean"
        case inspect.IntType():
            return "integer"
        case inspect.FloatType():
            return "number"
        case inspect.VarTupleType() | inspect.ListType():
            return "list"
        case inspect.StrType(max_length=longest):
            if is_secret(name):
                return "secret"
            return "long_text" if (longest or 0) > LONG_TEXT_CHARS else "text"
        case _:
            raise ConfigError(f"{name}: the form has no field for {describe(kind)}")


def _bound(kind: inspect.Type, *names: str) -> float | None:
    found = [getattr(kind, name, None) for name in names]
    return next((float(limit) for limit in found if limit is not None), None)


def label_of(name: str) -> str:
    """Returns a setting's name as words: `wake_word` becomes `Wake word`."""
    words = " ".join(UNITS.get(word, word) for word in name.split("_"))
    return words[:1].upper() + words[1:]


@cache
def field_docs(cls: type[Struct]) -> Mapping[str, str]:
    """Returns the docstrings of the fields of a type, for types that describe them so. They are
    read from the source, because Python does not keep them."""
    try:
        source = dedent(source_inspect.getsource(cls))
    except (OSError, TypeError):  # without source, as in a frozen program
        return {}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for statement, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            docs[statement.target.id] = " ".join(after.value.value.split())
    return docs
