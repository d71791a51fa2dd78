"""Describes the types of settings in words, for error messages and `earshot config`."""

import re
from collections.abc import Mapping

from msgspec import Struct, inspect
from msgspec.structs import asdict

MASK = "********"
"Text shown in place of a secret."

PLUGIN_NAME = "^[a-z][a-z0-9_]{0,31}$"
"Pattern for the name of a tool or a door that another package adds."

SECRET_WORDS = frozenset({"key", "apikey", "token", "secret", "password", "code"})
"Words of secret settings: a setting with one of these words in its name is never printed."

SECRET_TABLES = frozenset({"env", "headers"})
"Names of tables of secrets: no value in such a table is printed."

_PASSWORD = re.compile(r"(?<=://)(?P<user>[^\s/:@]*):[^\s/@]+(?=@)")
"Password in a URL, such as a database's."


def kind_of(kind: inspect.Type) -> inspect.Type:
    """Returns the type without its description."""
    return kind_of(kind.type) if isinstance(kind, inspect.Metadata) else kind


def sentence_of(kind: inspect.Type) -> str:
    """Returns the description of a setting; empty if it has none."""
    if not isinstance(kind, inspect.Metadata):
        return ""
    return str((kind.extra_json_schema or {}).get("description", ""))


def is_secret(name: str) -> bool:
    """Returns True if a setting of this name holds a secret."""
    return any(word in SECRET_WORDS for word in name.lower().split("_"))


def masked(value: object, name: str) -> object:
    """Returns the value with MASK in place of every secret in it. `name`: name of the setting,
    which decides whether it is secret."""
    if isinstance(value, Mapping):
        if name in SECRET_TABLES:
            return dict.fromkeys(value, MASK)
        return {key: masked(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(inner, name) for inner in value]
    if not isinstance(value, str):
        return value
    return MASK if value and is_secret(name) else _PASSWORD.sub(rf"\g<user>:{MASK}", value)


def describe(kind: inspect.Type) -> str:
    """Describes a type: `int in [0, 65535]`, `one of 'debug', 'info'`, `list of text`, ..."""
    if isinstance(kind, inspect.Metadata) and "title" in (kind.extra_json_schema or {}):
        return str((kind.extra_json_schema or {})["title"])
    match kind_of(kind):
        case inspect.IntType() as number:
            return f"int{_range(number)}"
        case inspect.FloatType() as number:
            return f"number{_range(number)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values):
            return "one of " + ", ".join(repr(value) for value in values)
        case inspect.StrType(min_length=shortest):
            return "non-empty text" if shortest else "text"
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return f"list of {describe(item)}"
        case inspect.UnionType(types):
            return " or ".join(describe(member) for member in types)
        case inspect.NoneType():
            return "nothing"
        case inspect.StructType() | inspect.DictType():
            return "table"
        case other:
            return type(other).__name__.removesuffix("Type").lower()


def _range(number: inspect.IntType | inspect.FloatType) -> str:
    """Returns the range of a number in words, such as ` in [0, 65535]`; empty if it has none."""
    minimum, maximum = number.ge, number.le
    if minimum is not None and maximum is not None:
        return (
            f" in [{minimum:g}, {maximum:g}]"
            if isinstance(minimum, float)
            else f" in [{minimum}, {maximum}]"
        )
    if minimum is not None:
        return f" >= {minimum}"
    return "" if maximum is None else f" <= {maximum}"


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all tables of settings. Its secrets stay out of logs and tracebacks."""

    def __repr__(self) -> str:
        pairs = (f"{name}={masked(value, name)!r}" for name, value in asdict(self).items())
        return f"{type(self).__name__}({', '.join(pairs)})"
