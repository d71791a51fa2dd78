"""Reading of a model's arguments, which may be anything, and errors that name what is wrong."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.errors import RequestError
from core.ports import ToolContext, ToolOutcome, ToolSpec

MAX_TEXT_CHARS = 200  # a spoken name is shorter; longer text is a model's mistake

SkillHandler = Callable[[Mapping[str, Any], ToolContext], ToolOutcome]


class ToolError(RequestError):
    """A tool cannot do what was asked. `code` is stable; `data` is for the model's answer."""

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
    """Calls the handler. A ToolError becomes the outcome's error."""
    handler = handlers.get(name)
    if handler is None:
        return ToolOutcome({"message": f"there is no tool {name!r}"}, error="unknown_tool")
    try:
        return handler(arguments, context)
    except ToolError as error:
        return ToolOutcome(error.data, error=error.code)


def read_text(arguments: Mapping[str, object], key: str) -> str:
    """Returns the text under `key` with single spaces, or an empty one if it is absent.

    Raises ToolError.
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
    """Returns the number under `key`, or None if it is absent. Raises ToolError."""
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
    return {"type": "string", "description": description}


def number_schema(description: str, minimum: float, maximum: float) -> dict[str, object]:
    return {
        "type": "number",
        "description": description,
        "minimum": minimum,
        "maximum": maximum,
    }


def choice_schema(description: str, choices: Sequence[str]) -> dict[str, object]:
    return {"type": "string", "description": description, "enum": list(choices)}


def tool(
    name: str,
    description: str,
    properties: Mapping[str, Mapping[str, object]],
    *,
    required: Sequence[str] = (),
    is_read_only: bool = False,
) -> ToolSpec:
    """Returns a ToolSpec whose arguments are an object with these properties.

    The skill checks the arguments itself: its errors have codes, and it knows more names than the
    schema lists.
    """
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolSpec(name, description, schema, is_read_only, checks_arguments=True)
