"""Converts the texts of a form into typed values. Errors name the field and its allowed values."""

import re
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
"Number of characters of a client's value that an error repeats: enough to find a typo."


def is_known(name: str, struct_type: type[Struct]) -> bool:
    """Returns whether a form's field, in any of its spellings, belongs to the struct."""
    return _base_name(name) in {_base_name(info.encode_name) for info in _fields(struct_type)}


def describe_allowed(struct_type: type[Struct], name: str) -> str:
    """Describes the values that a field of the struct may have, in words."""
    fields_by_name = {info.encode_name: info for info in _fields(struct_type)}
    info = fields_by_name.get(re.split(r"[.[]", name, maxsplit=1)[0])
    return _describe_schema(_schema(info.type)) if info is not None else "text"


def parse_fields(form: Iterable[tuple[str, str]], struct_type: type[S]) -> S:
    """Converts a form's fields to `struct_type`. Empty fields count as absent, unknown ones are
    ignored.

    A list is `name[]` or `name` several times, an object `name[key]`. Raises RequestError with
    `param` and code missing_required_parameter or invalid_value.
    """
    values: dict[str, list[tuple[str, str]]] = {}
    for name, text in form:
        if text.strip():
            values.setdefault(_base_name(name), []).append((_member_name(name), text))
    return _build_struct(values, struct_type, "{}")


def _build_struct(
    form_values: Mapping[str, Sequence[tuple[str, str]]], struct_type: type[S], param_format: str
) -> S:
    values = {
        info.name: _convert_field(info, form_values[_base_name(info.encode_name)], param_format)
        for info in _fields(struct_type)
        if _base_name(info.encode_name) in form_values
    }
    for info in _fields(struct_type):
        if info.name not in values and info.default is NODEFAULT:
            param = param_format.format(info.encode_name)
            raise RequestError(
                f"Missing required parameter: '{param}'.",
                code="missing_required_parameter",
                param=param,
            )
    return struct_type(**values)


@cache
def _fields(struct_type: type[Struct]) -> tuple[FieldInfo, ...]:
    """Returns the struct's fields. Cached: msgspec reads the annotations each time."""
    return fields(struct_type)


def _convert_field(
    info: FieldInfo, form_values: Sequence[tuple[str, str]], param_format: str
) -> Any:
    param = param_format.format(info.encode_name)
    schema = _schema(info.type)
    if nested := _struct_of_field(info.type):
        members = {key: [("", text)] for key, text in form_values if key}
        if members:
            return _build_struct(members, nested, param + "[{}]")
    texts: str | list[str] = form_values[-1][1]
    if schema.get("type") == "array":
        texts = [text for _, text in form_values]
    try:
        return msgspec.convert(texts, info.type, strict=False)
    except msgspec.ValidationError:
        quoted = texts if isinstance(texts, str) else ", ".join(texts)
        raise RequestError(
            f"Invalid value for '{param}': {quoted[:MAX_SHOWN_CHARS]!r}. "
            f"Allowed: {_describe_schema(schema)}.",
            code="invalid_value",
            param=param,
        ) from None


@cache
def _struct_of_field(annotation: Any) -> type[Struct] | None:
    """Returns the struct that a field may hold, or None."""
    info = type_info(annotation)
    while isinstance(info, Metadata):
        info = info.type
    types = info.types if isinstance(info, UnionType) else (info,)
    return next((member.cls for member in types if isinstance(member, StructType)), None)


@cache
def _schema(annotation: Any) -> Mapping[str, Any]:
    (schema,), _ = msgspec.json.schema_components([annotation])
    return dict(schema)


def _describe_schema(schema: Mapping[str, Any]) -> str:
    """Describes the values of a type in words."""
    match schema:
        case {"anyOf": options}:
            texts = [_describe_schema(option) for option in options if option.get("type") != "null"]
            return " or ".join(texts)
        case {"enum": values}:
            return ", ".join(map(str, values))
        case {"type": "array", "maxItems": maximum, "items": item}:
            return f"at most {maximum}, each {_describe_schema(item)}"
        case {"type": "array", "items": item}:
            return f"each {_describe_schema(item)}"
        case {"type": "integer", "minimum": minimum, "maximum": maximum}:
            return f"a whole number from {minimum} to {maximum}"
        case {"type": "number", "minimum": minimum, "maximum": maximum}:
            return f"a number from {minimum} to {maximum}"
        case {"type": "string", "maxLength": maximum}:
            return f"text of at most {maximum} characters"
        case {"type": "boolean"}:
            return "true, false"
        case {"$ref": _}:
            return "an object, as name[key]"
        case _:
            return "text"


def _base_name(name: str) -> str:
    """Returns the name of a field without brackets: `a` for `a`, `a[]` and `a[key]`."""
    return name.partition("[")[0]


def _member_name(name: str) -> str:
    """Returns the key in the brackets of a field's name; empty if there is none."""
    return name.partition("[")[2].removesuffix("]")
