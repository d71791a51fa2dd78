"""Check of a model's arguments against a tool's JSON Schema."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from core.errors import RequestError

# most characters of a wrong or an allowed value in a message: the model knows what it wrote
MAX_SHOWN_CHARS = 100
MAX_CHOICES = 30  # most allowed values in a message: the model has the schema with all of them


class InvalidArguments(RequestError):
    """A model's arguments do not fit. `param` names the argument, the message what is allowed."""

    code = "invalid_arguments"


# Patterns may come from a foreign server, and Python's `re` can take exponential time for them. So
# they are not checked here; the server checks its own.
_Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"pattern": None, "patternProperties": None}
)

_NOTHING_ELSE: Registry[Any] = Registry()
"Registry without entries: a `$ref` to another document is never fetched."


class ArgumentCheck:
    """Checks the arguments of one tool. With an invalid schema it accepts everything."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self._validator = _checked(schema)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises InvalidArguments if the arguments do not fit the schema."""
        if self._validator is None:
            return
        try:
            error = best_match(self._validator.iter_errors(dict(arguments)))
        except (Unresolvable, RecursionError):
            return
        if error is not None:
            where = _where(error)
            raise InvalidArguments(f"{where or 'arguments'}: {_what(error)}", param=where or None)


def _checked(schema: Mapping[str, Any]) -> Any:
    try:
        Draft202012Validator.check_schema(dict(schema))
    except (SchemaError, RecursionError):
        return None
    return _Validator(dict(schema), registry=_NOTHING_ELSE)


def _where(error: ValidationError) -> str:
    """Returns the place of the error, such as `rooms[2].name`. Empty: the arguments as a whole."""
    path = ""
    for step in error.absolute_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


def _what(error: ValidationError) -> str:
    """Returns what is wrong and what is allowed, without the whole schema."""
    got = _short(error.instance)
    schema: Any = error.schema
    rule: Any = error.validator_value
    match error.validator:
        case "enum":
            return f"{got} is not one of {_choices(rule)}"
        case "anyOf" | "oneOf":
            return f"{got} is not {_ways(rule)}"
        case "type":
            return f"must be {rule}, got {got}"
        case "additionalProperties":
            known = ", ".join(schema.get("properties", ())) or "none"
            return f"{error.message[:MAX_SHOWN_CHARS]}; known are: {known}"
        case _:
            return error.message[: 2 * MAX_SHOWN_CHARS]


def _ways(rules: Sequence[object]) -> str:
    """Returns what any of these schemas accepts, as far as that is short."""
    known = [rule for rule in rules if isinstance(rule, dict)]
    choices = [value for rule in known for value in rule.get("enum", ())]
    kinds = [str(rule["type"]) for rule in known if "type" in rule]
    return f"one of {_choices(choices)}" if choices else " or ".join(kinds) or "valid here"


def _choices(values: list[object]) -> str:
    shown = ", ".join(_short(value) for value in values[:MAX_CHOICES])
    more = len(values) - MAX_CHOICES
    return f"{shown} and {more} more" if more > 0 else shown


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."


# JSON of tools' arguments and declarations, limited to what all later parsers can take. Pure.

MAX_DEPTH = 64
"""Most levels of lists and objects. What one parser reads at the end of its stack, the next cannot
write. No tool of a real client has twenty."""


def parse_arguments(arguments: str) -> dict[str, Any]:
    """Parses a JSON object. Raises ValueError, also for lone surrogates and for too many levels."""
    try:
        found = msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise ValueError("not a JSON object") from None
    if is_too_deep(found):
        raise ValueError(f"more than {MAX_DEPTH} levels")
    return found


def is_too_deep(value: object, levels: int = MAX_DEPTH) -> bool:
    """Returns whether a JSON value has more than `levels` levels of lists and objects."""
    if not isinstance(value, dict | list):
        return False
    below = value.values() if isinstance(value, dict) else value
    return levels <= 0 or any(is_too_deep(child, levels - 1) for child in below)
