"""Arguments and declarations of tools: JSON that everything behind us can take, too. Pure."""

from typing import Any

import msgspec

MAX_DEPTH = 64
"""Of lists and objects in each other. What a parser takes at the end of its stack, the next one
cannot write; no tool of a real client has twenty."""


def parse_arguments(arguments: str) -> dict[str, Any]:
    """A JSON object. Raises ValueError, also for half characters and for what is too deep."""
    try:
        found = msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise ValueError("no JSON object") from None
    if is_too_deep(found):
        raise ValueError(f"more than {MAX_DEPTH} levels")
    return found


def is_too_deep(value: object, levels: int = MAX_DEPTH) -> bool:
    if not isinstance(value, dict | list):
        return False
    below = value.values() if isinstance(value, dict) else value
    return levels <= 0 or any(is_too_deep(one, levels - 1) for one in below)
