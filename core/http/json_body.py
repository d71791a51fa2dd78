"""Decodes the JSON body of a request into a typed struct.

Every HTTP API with JSON bodies uses it. The error text for a wrong field is a matter of the API's
dialect: ours is `describe_field_problem`, and OpenAI's is in `web/openai/json_body.py`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec import Struct, inspect

from core.errors import RequestError

T = TypeVar("T", bound=Struct)

MAX_REASON_CHARS = 200
"Limit of the decoder's own words in an error. They may repeat a long value of the client."

MAX_FIELD_CHARS = 64
"Limit of an unknown field's name in an error: enough to find a typo."

_LOCATION = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
"End of msgspec's message: the path of the wrong value."
_MISSING = re.compile(r"missing required field `(?P<name>[^`]*)`")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A field of a body that has a wrong value, is missing or is unknown."""

    path: str
    "Dotted path of the value that is wrong; empty if that is the whole body."
    reason: str
    "The decoder's words, without the path."
    missing_field: str = ""
    "Name of the field that the object at `path` lacks; empty if the problem is another one."
    unknown_field: str = ""
    "Name of the field that the object at `path` may not have; empty if the problem is another one."

    @property
    def param(self) -> str | None:
        """Dotted path of the field itself, or None if the whole body is wrong."""
        return ".".join(filter(None, (self.path, self.missing_field or self.unknown_field))) or None


def decode_json_body(
    body: bytes,
    wanted: type[T],
    field_error: Callable[[FieldProblem, type[Struct]], RequestError] | None = None,
) -> T:
    """Decodes a body.

    wanted: the struct; fields that it does not know are refused only if it forbids them.
    field_error: builds the error for a wrong field in the API's dialect. None means
    `describe_field_problem`.

    Raises RequestError invalid_json, or the error that `field_error` returns.
    """
    try:
        return msgspec.json.decode(body, type=wanted)
    except msgspec.ValidationError as error:
        build_error = field_error or describe_field_problem
        raise build_error(_field_problem(str(error)), wanted) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = str(error)[:MAX_REASON_CHARS]
        raise RequestError(f"The body is not JSON: {reason}.", code="invalid_json") from None


def decode_json_body_or_empty(body: bytes, wanted: type[T]) -> T:
    """Decodes a body where an empty one counts as `{}`. Raises as `decode_json_body`."""
    return decode_json_body(body or b"{}", wanted)


def describe_field_problem(problem: FieldProblem, wanted: type[Struct]) -> RequestError:
    """Returns RequestError invalid_value, with the field and, for a wrong name, the known names."""
    reason = problem.reason
    if problem.missing_field or problem.unknown_field:
        reason = f"{reason}; there are {', '.join(_field_names(wanted, problem.path))}"
    return RequestError(
        f"{problem.param or 'body'}: {reason}", code="invalid_value", param=problem.param
    )


def _field_problem(message: str) -> FieldProblem:
    location = _LOCATION.search(message)
    missing, unknown = _MISSING.search(message), _UNKNOWN.search(message)
    return FieldProblem(
        path=location["path"] if location else "",
        reason=(message[: location.start()] if location else message)[:MAX_REASON_CHARS],
        missing_field=missing["name"] if missing else "",
        unknown_field=unknown["name"][:MAX_FIELD_CHARS] if unknown else "",
    )


def _field_names(wanted: type[Struct], path: str) -> list[str]:
    """Returns the fields of the struct at the path; those of the last struct on the way if the path
    leads through a list or a mapping."""
    node = inspect.type_info(wanted)
    assert isinstance(node, inspect.StructType)
    for name in filter(None, path.split(".")):
        inner = next((field.type for field in node.fields if field.encode_name == name), None)
        options = inner.types if isinstance(inner, inspect.UnionType) else (inner,)
        struct = next(
            (option for option in options if isinstance(option, inspect.StructType)), None
        )
        if struct is None:
            break
        node = struct
    return [field.encode_name for field in node.fields]
