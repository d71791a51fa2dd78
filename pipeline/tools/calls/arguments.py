"""Parses the arguments that a model wrote for a tool, and checks them against its JSON Schema."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from core.errors import RequestError

MAX_SHOWN_CHARS = 100
"Most characters of a value in a message. The model knows what it wrote."
MAX_CHOICES = 30
"Most allowed values in a message. The model has the schema with all of them."


class InvalidArguments(RequestError):
    """The arguments do not fit the schema.

    `param` names the argument; the message names the allowed values.
    """

    code = "invalid_arguments"


def _unchecked(*_: object) -> tuple[()]:
    """Accepts any value, in place of the check of a keyword."""
    return ()


# Patterns are not checked: a foreign server may have written them, and Python's `re` can take
# exponential time. That server checks its own patterns.
UNCHECKED = {"pattern": _unchecked, "patternProperties": _unchecked}
"Keywords of JSON Schema that are not checked."
_Validator: Any = extend(Draft202012Validator, UNCHECKED)  # type: ignore[no-untyped-call]

NO_DOCUMENTS: Registry[Any] = Registry()
"Registry without entries: a `$ref` to another document is never fetched."


class ArgumentCheck:
    """Checks the arguments of one tool.

    schema: JSON Schema of the arguments. If it is invalid, all arguments are accepted.
    """

    def __init__(self, schema: Mapping[str, object]) -> None:
        self._validator = _validator(schema)

    def check(self, arguments: Mapping[str, object]) -> None:
        """Raises InvalidArguments if the arguments do not fit the schema."""
        if self._validator is None:
            return
        try:
            error = best_match(self._validator.iter_errors(dict(arguments)))
        except (Unresolvable, RecursionError):
            return  # the schema is at fault, not the arguments; the tool may still check them
        if error is not None:
            path = _error_path(error)
            raise InvalidArguments(
                f"{path or 'arguments'}: {_error_message(error)}", param=path or None
            )


def _validator(schema: Mapping[str, object]) -> Any:
    try:
        Draft202012Validator.check_schema(dict(schema))
    except (SchemaError, RecursionError):
        return None
    return _Validator(dict(schema), registry=NO_DOCUMENTS)


def _error_path(error: ValidationError) -> str:
    """Returns the path of the wrong value, such as `rooms[2].name`; empty for all arguments."""
    path = ""
    for step in error.absolute_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


def _error_message(error: ValidationError) -> str:
    """Returns a message: what is wrong, and what is allowed."""
    got = _short(error.instance)
    schema: Any = error.schema
    rule: Any = error.validator_value
    match error.validator:
        case "enum":
            return f"{got} is not one of {_choices(rule)}"
        case "anyOf" | "oneOf":
            return f"{got} is not {_accepted(rule)}"
        case "type":
            return f"must be {rule}, got {got}"
        case "additionalProperties":
            known = ", ".join(schema.get("properties", ())) or "none"
            return f"{error.message[:MAX_SHOWN_CHARS]}; known are: {known}"
        case _:
            return error.message[: 2 * MAX_SHOWN_CHARS]


def _accepted(rules: Sequence[object]) -> str:
    """Returns the values or types that any of these schemas accepts, as text."""
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


MAX_DEPTH = 64
"""Most levels of lists and objects. Deeper JSON may be parsed here, and overflow the stack of a
later encoder. No real tool needs twenty levels."""


def parse_arguments(arguments: str) -> dict[str, object]:
    """Parses a JSON object.

    Raises ValueError for other JSON, lone surrogates, and more than MAX_DEPTH levels.
    """
    try:
        found = msgspec.json.decode(arguments, type=dict[str, object])
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
