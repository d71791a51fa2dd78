"""Reads a model's arguments, which may be anything, and makes schemas, for the skills."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.errors import RequestError
from core.ports import ToolContext, ToolOutcome, ToolSpec

MAX_TEXT_CHARS = 200
"Most characters of a text. A spoken name is shorter, so longer text is a model's mistake."

SkillHandler = Callable[[Mapping[str, Any], ToolContext], ToolOutcome]
"Function that runs one tool. It raises ToolError if it cannot do what it is asked for."


class ToolError(RequestError):
    """A tool cannot do what it is asked for.

    code: stable error code. data: further facts for the model's answer.
    """

    code = "invalid_arguments"

    def __init__(self, message: str, *, code: str | None = None, **data: object) -> None:
        super().__init__(message, code=code)
        self.data = {"message": message, **data}


def run_tool(
    handlers: Mapping[str, SkillHandler],
    name: str,
    arguments: Mapping[str, object],
    context: ToolContext,
) -> ToolOutcome:
    """Runs the tool `name` by its handler. A ToolError becomes the outcome's error."""
    handler = handlers.get(name)
    if handler is None:
        return ToolOutcome({"message": f"there is no tool {name!r}"}, error="unknown_tool")
    try:
        return handler(arguments, context)
    except ToolError as error:
        return ToolOutcome(error.data, error=error.code)


def read_text(arguments: Mapping[str, object], key: str) -> str:
    """Returns the text under `key` with single spaces, or an empty text if there is none.

    Raises ToolError for another value, or for more than MAX_TEXT_CHARS.
    """
    value = arguments.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARS:
        raise ToolError(f"{key} must be a text of at most {MAX_TEXT_CHARS} characters", param=key)
    return " ".join(value.split())


def read_number(
    arguments: Mapping[str, object], key: str, minimum: float, maximum: float
) -> float | None:
    """Returns the number under `key`, or None if there is none.

    Raises ToolError for another value, or for a number that is out of range.
    """
    value = arguments.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ToolError(f"{key} must be a number", param=key)
    if not minimum <= value <= maximum:
        raise ToolError(
            f"{key} must be between {minimum:g} and {maximum:g}",
            code="out_of_range",
            param=key,
            minimum=minimum,
            maximum=maximum,
        )
    return float(value)


def require_number(
    arguments: Mapping[str, object], key: str, minimum: float, maximum: float
) -> float:
    """Returns the number under `key`. Raises ToolError if it is absent or out of range."""
    number = read_number(arguments, key, minimum, maximum)
    if number is None:
        raise ToolError(f"{key} is required", param=key)
    return number


def text_schema(description: str) -> dict[str, object]:
    """Returns the JSON Schema of a text."""
    return {"type": "string", "description": description}


def number_schema(description: str, minimum: float, maximum: float) -> dict[str, object]:
    """Returns the JSON Schema of a number in a range."""
    return {
        "type": "number",
        "description": description,
        "minimum": minimum,
        "maximum": maximum,
    }


def choice_schema(description: str, choices: Sequence[str]) -> dict[str, object]:
    """Returns the JSON Schema of one of several texts."""
    return {"type": "string", "description": description, "enum": list(choices)}


def tool(
    name: str,
    description: str,
    properties: Mapping[str, Mapping[str, object]],
    *,
    required: Sequence[str] = (),
    is_read_only: bool = False,
) -> ToolSpec:
    """Returns the specification of a tool that checks its arguments itself.

    properties: JSON Schema of each argument, by name. required: names of required arguments.
    """
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
    # The skill's own errors have codes, and it knows more names than the schema lists.
    return ToolSpec(name, description, schema, is_read_only, checks_arguments=True)
