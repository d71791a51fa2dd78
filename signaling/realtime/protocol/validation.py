"""Turns msgspec's errors into messages that name the field, the problem and the allowed values."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import msgspec
from msgspec import inspect

from core.errors import RequestError

T = TypeVar("T")

_AT = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
"End of msgspec's message: the path of the wrong value."
_UNKNOWN = re.compile(r"unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<name>.*)`")
_WRONG_TYPE = re.compile(r"^Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`")
_STEP = re.compile(r"[^.\[\]]+|\[[^\]]*\]")
"One step of a path: a key, or an index in brackets."

MAX_NAME_LENGTH = 64
"Characters of a client's text that an error repeats: enough to find a typo."


def validate(raw: object, expected_type: type[T], *, prefix: str = "") -> T:
    """Converts `raw` (decoded JSON) to the type `expected_type`. Raises RequestError with `param`
    (below `prefix`) and code unknown_parameter, missing_required_parameter, invalid_type or
    invalid_value.
    """
    try:
        return msgspec.convert(raw, expected_type)
    except msgspec.ValidationError as exc:
        raise _error(str(exc), raw, expected_type, prefix) from None


@contextmanager
def params_below(prefix: str) -> Iterator[None]:
    """Adds a prefix to the `param` of RequestErrors raised inside, so that it starts at the outer
    object."""
    try:
        yield
    except RequestError as error:
        if error.param is not None:
            error.param = f"{prefix}.{error.param}"
        raise


@contextmanager
def item_error_code(action: str) -> Iterator[None]:
    """Replaces the code of a missing item by OpenAI's code for this action. `action`:
    delete, retrieve or truncate. Clients ignore that code, and some end their connection over any
    other."""
    try:
        yield
    except RequestError as error:
        if error.code == "item_not_found":
            error.code = f"item_{action}_invalid_item_id"
        raise


def _error(text: str, raw: object, expected_type: type, prefix: str) -> RequestError:
    """Builds our error from msgspec's message, which names the path and the problem."""
    at = _AT.search(text)
    path, problem = (at["path"], text[: at.start()]) if at else ("", text)
    path = path.removesuffix(".")
    if match := _UNKNOWN.search(problem):
        param = _joined(prefix, path, match["name"][:MAX_NAME_LENGTH])
        allowed = _listed(_fields(_nodes(raw, expected_type, path)))
        return RequestError(
            f"Unknown parameter: '{param}'. Allowed: {allowed}.",
            code="unknown_parameter",
            param=param,
        )
    if match := _MISSING.search(problem):
        param = _joined(prefix, path, match["name"])
        return RequestError(
            f"Missing required parameter: '{param}'.",
            code="missing_required_parameter",
            param=param,
        )
    param = _joined(prefix, path)
    if match := _WRONG_TYPE.match(problem):
        message = f"Invalid type for '{param}': expected {match['wanted']}, got {match['got']}."
        return RequestError(message, code="invalid_type", param=param)
    allowed = _listed(_values(raw, expected_type, path))
    rule = f"Allowed: {allowed}" if allowed else problem
    return RequestError(f"Invalid value for '{param}'. {rule}.", code="invalid_value", param=param)


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part).replace(".[", "[")


def _listed(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values}))


@cache
def _info(expected_type: type) -> inspect.Type:
    return inspect.type_info(expected_type)


def _nodes(raw: object, expected_type: type, path: str) -> list[inspect.Type]:
    """Returns the types that may stand at the path: several if a union leaves it open."""
    nodes = _chosen(_flat(_info(expected_type)), raw)
    for step in _STEP.findall(path):
        raw = raw.get(step) if isinstance(raw, dict) else _element(raw, step)
        nodes = _chosen([below for node in nodes for below in _child_nodes(node, step)], raw)
    return nodes


def _element(raw: object, step: str) -> object:
    index = step.strip("[]")
    return raw[int(index)] if isinstance(raw, list) and index.isdecimal() else None


def _chosen(nodes: list[inspect.Type], raw: object) -> list[inspect.Type]:
    """Returns the type of a tagged union that the tag in `raw` selects; all if it selects none."""
    if not isinstance(raw, dict):
        return nodes
    tagged = [
        node
        for node in nodes
        if isinstance(node, inspect.StructType)
        and node.tag_field is not None
        and raw.get(node.tag_field) == node.tag
    ]
    return [*tagged] or nodes


def _flat(node: inspect.Type) -> list[inspect.Type]:
    return list(node.types) if isinstance(node, inspect.UnionType) else [node]


def _child_nodes(node: inspect.Type, step: str) -> list[inspect.Type]:
    match node:
        case inspect.StructType(fields=fields):
            return [t for field in fields if field.encode_name == step for t in _flat(field.type)]
        case inspect.ListType(item_type=item):
            return _flat(item)
        case _:
            return []


def _fields(nodes: list[inspect.Type]) -> set[str]:
    structs = [node for node in nodes if isinstance(node, inspect.StructType)]
    tags = {node.tag_field for node in structs if node.tag_field}
    return tags | {field.encode_name for node in structs for field in node.fields}


def _values(raw: object, expected_type: type, path: str) -> set[object]:
    """Returns the literals or tags that may stand at the path; empty if it is no enumeration."""
    above, _, last = path.rpartition(".")
    tags: set[object] = {
        node.tag
        for node in _nodes(raw, expected_type, above)
        if isinstance(node, inspect.StructType) and node.tag_field == last
    }
    literals = (n for n in _nodes(raw, expected_type, path) if isinstance(n, inspect.LiteralType))
    return tags | {value for node in literals for value in node.values}
