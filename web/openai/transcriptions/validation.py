"""Conversion of a form's texts into typed values, with errors that name field and allowed
values."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.inspect import Metadata, StructType, UnionType, type_info
from msgspec.structs import FieldInfo, fields

from core.errors import RequestError

S = TypeVar("S", bound=Struct)

MAX_SHOWN_CHARS = 64
"Most characters of a client's value that an error repeats: enough to find a typo."


def is_known(name: str, wanted: type[Struct]) -> bool:
    """Returns whether a form's field, in any of its spellings, belongs to the struct."""
    return _base(name) in {_base(info.encode_name) for info in _fields(wanted)}


def allowed(wanted: type[Struct], name: str) -> str:
    """Describes the values that a field of the struct may have, in words."""
    known = {info.encode_name: info for info in _fields(wanted)}
    info = known.get(name.partition(".")[0])
    return _allowed(_schema(info.type)) if info is not None else "text"


def parse_fields(form: Iterable[tuple[str, str]], wanted: type[S]) -> S:
    """Converts a form's fields to `wanted`. Empty fields count as absent, unknown ones are ignored.

    A list is `name[]` or `name` several times, an object `name[key]`. Raises RequestError with
    `param` and code missing_required_parameter or invalid_value.
    """
    sent: dict[str, list[tuple[str, str]]] = {}
    for name, text in form:
        if text.strip():
            sent.setdefault(_base(name), []).append((_key(name), text))
    return _struct(sent, wanted, "{}")


def _struct(sent: Mapping[str, Sequence[tuple[str, str]]], wanted: type[S], param_format: str) -> S:
    values = {
        info.name: _value(info, sent[_base(info.encode_name)], param_format)
        for info in _fields(wanted)
        if _base(info.encode_name) in sent
    }
    for info in _fields(wanted):
        if info.name not in values and info.default is NODEFAULT:
            param = param_format.format(info.encode_name)
            raise RequestError(
                f"Missing required parameter: '{param}'.",
                code="missing_required_parameter",
                param=param,
            )
    return wanted(**values)


@cache
def _fields(wanted: type[Struct]) -> tuple[FieldInfo, ...]:
    """Returns the struct's fields. Cached: msgspec reads the annotations each time."""
    return fields(wanted)


def _value(info: FieldInfo, sent: Sequence[tuple[str, str]], param_format: str) -> Any:
    param = param_format.format(info.encode_name)
    schema = _schema(info.type)
    if nested := _object_in(info.type):
        keyed = {key: [("", text)] for key, text in sent if key}
        if keyed:
            return _struct(keyed, nested, param + "[{}]")
    texts: str | list[str] = sent[-1][1]
    if schema.get("type") == "array":
        texts = [text for _, text in sent]
    try:
        return msgspec.convert(texts, info.type, strict=False)
    except msgspec.ValidationError:
        shown = texts if isinstance(texts, str) else ", ".join(texts)
        raise RequestError(
            f"Invalid value for '{param}': {shown[:MAX_SHOWN_CHARS]!r}. "
            f"Allowed: {_allowed(schema)}.",
            code="invalid_value",
            param=param,
        ) from None


@cache
def _object_in(annotation: Any) -> type[Struct] | None:
    """Returns the struct that a field may hold, or None."""
    info = type_info(annotation)
    while isinstance(info, Metadata):
        info = info.type
    types = info.types if isinstance(info, UnionType) else (info,)
    return next((one.cls for one in types if isinstance(one, StructType)), None)


@cache
def _schema(annotation: Any) -> Mapping[str, Any]:
    (schema,), _ = msgspec.json.schema_components([annotation])
    return dict(schema)


def _allowed(schema: Mapping[str, Any]) -> str:
    """Describes the values of a type in words."""
    match schema:
        case {"anyOf": options}:
            described = [_allowed(option) for option in options if option.get("type") != "null"]
            return " or ".join(described)
        case {"enum": values}:
            return ", ".join(map(str, values))
        case {"type": "array", "maxItems": most, "items": item}:
            return f"at most {most}, each {_allowed(item)}"
        case {"type": "array", "items": item}:
            return f"each {_allowed(item)}"
        case {"type": "integer", "minimum": least, "maximum": most}:
            return f"a whole number from {least} to {most}"
        case {"type": "number", "minimum": least, "maximum": most}:
            return f"a number from {least} to {most}"
        case {"type": "boolean"}:
            return "true, false"
        case {"$ref": _}:
            return "an object, as name[key]"
        case _:
            return "text"


def _base(name: str) -> str:
    return name.partition("[")[0]


def _key(name: str) -> str:
    return name.partition("[")[2].removesuffix("]")
