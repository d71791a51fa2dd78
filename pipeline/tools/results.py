"""Results of tools as JSON for the model, cut to what a model should have to read."""

import json
from collections.abc import Mapping
from typing import Any

from core.ports import ToolOutcome

MAX_RESULT_CHARS = 8000
"Most characters of one result: a model's context window has no room for a whole database."

LOOK_CHARS = 64_000
"Most characters that are encoded to find out how long a result is: some 10 ms of the event loop."

MAX_DEPTH = 12
"Most levels of a result. Models make no sense of deeper ones."

STEPS = ((200, 4000), (60, 1000), (20, 400), (8, 150), (3, 60))
"Steps of cutting: most entries of each list and table, and most characters of each text."

INTERRUPTED = '{"error":"interrupted","message":"no result was waited for; it may still happen"}'
"Result of a call that was interrupted. A model that did not know of the call would make it again."

NO_RESULT = '{"error":"no_result_yet"}'
"Result of a call that the client has not answered. LLM servers refuse a call without a result."

_encoder = json.JSONEncoder(ensure_ascii=False, default=str)


def as_json(outcome: ToolOutcome, limit_chars: int = MAX_RESULT_CHARS) -> str:
    """Returns the outcome as JSON. An error's code stands under `error`.

    A result that is too long is cut, with a note under `truncated`. Raises ValueError, TypeError or
    RecursionError for values that JSON cannot hold.
    """
    error = {} if outcome.error is None else {"error": outcome.error}
    data = {**outcome.data, **error} if error else dict(outcome.data)
    text, is_whole = _beginning({**error, **data})
    if is_whole and len(text) <= limit_chars:
        return text
    length = f"{len(text)}" if is_whole else f"more than {LOOK_CHARS}"
    note = f"cut to fit: it had {length} characters, at most {limit_chars} are shown"
    for entries, chars in STEPS:
        cutter = _ResultTruncator(entries, chars, limit_chars // 2)
        cut, is_whole = _beginning({**error, "truncated": note, **cutter.cut(data)})
        if is_whole and len(cut) <= limit_chars:
            return cut
    # a quarter: encoding the beginning again doubles its quotes, and more
    beginning = text[: limit_chars // 4]
    return _beginning({**error, "truncated": note, "beginning": beginning})[0]


def is_error(result: str) -> bool:
    """Returns whether a result of `as_json` is an error."""
    decoded = json.loads(result)
    return isinstance(decoded, dict) and "error" in decoded


def refused_result(reason: str = "") -> str:
    """Returns the result of a call that the client did not allow."""
    message = f"the user did not allow it{': ' if reason else ''}{reason}"
    return as_json(ToolOutcome({"message": message}, error="not_approved"))


def _beginning(data: Mapping[str, object]) -> tuple[str, bool]:
    """Returns (JSON, whether it is complete). Encoding stops soon after LOOK_CHARS."""
    parts: list[str] = []
    length = 0
    for part in _encoder.iterencode(data):
        parts.append(part)
        length += len(part)
        if length > LOOK_CHARS:
            break
    # A lone surrogate cannot be encoded as UTF-8, so it could not be sent to a model.
    text = "".join(parts).encode("utf-8", "replace").decode("utf-8")
    return text, length <= LOOK_CHARS


class _ResultTruncator:
    """Cuts a result: keeps the first entries of each list and table, and says how many it left
    out."""

    def __init__(self, entries: int, chars: int, nodes: int) -> None:
        self._entries, self._chars = entries, chars
        self._nodes = nodes
        "Number of values that it may still look at. More would not fit anyway."

    def cut(self, value: object, depth: int = MAX_DEPTH) -> Any:
        self._nodes -= 1
        match value:
            case str() if len(value) > self._chars:
                left_out = len(value) - self._chars
                return f"{value[: self._chars]}... ({left_out} characters left out)"
            case Mapping() | list() | tuple() if depth == 0 or self._nodes < 0:
                return "..."
            case Mapping():
                kept = list(value.items())[: self._entries]
                table = {str(key): self.cut(inner, depth - 1) for key, inner in kept}
                left_out = len(value) - len(kept)
                return {**table, "...": f"{left_out} entries left out"} if left_out else table
            case list() | tuple():
                items = [self.cut(inner, depth - 1) for inner in value[: self._entries]]
                left_out = len(value) - len(items)
                return [*items, f"... {left_out} entries left out"] if left_out else items
            case _:
                return value
