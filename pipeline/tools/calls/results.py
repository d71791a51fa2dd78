"""Encodes results of tools as JSON for the model, cut to a length that a model can read."""

import json
from collections.abc import Mapping
from typing import Any

from core.ports import ToolOutcome

MAX_RESULT_CHARS = 8000
"Most characters of one result. A longer one would fill the model's context window."

MAX_ENCODED_CHARS = 64_000
"""Most characters that are encoded to find a result's length. They take about 10 ms of the event
loop."""

MAX_DEPTH = 12
"Most levels of lists and tables in a result. Models do not understand deeper ones."

CUT_STEPS = ((200, 4000), (60, 1000), (20, 400), (8, 150), (3, 60))
"(most entries of each list and table, most characters of each text): tried until a result fits."

INTERRUPTED = '{"error":"interrupted","message":"no result was waited for; it may still happen"}'
"Result of a call that the user interrupted. Without it the model would repeat the call."

NO_RESULT = '{"error":"no_result_yet"}'
"Result of a call that the client has not answered yet. LLM servers refuse calls without one."

PRIVATE_TO = "private_to"
"""Key of a result that belongs to one person, with that person's id. Others who speak in the same
conversation later do not get it: see `pipeline.conversation.private_exchanges`."""

_encoder = json.JSONEncoder(ensure_ascii=False, default=str)


def as_json(outcome: ToolOutcome, limit_chars: int = MAX_RESULT_CHARS) -> str:
    """Returns the outcome as JSON, with the code of an error under `error`.

    limit_chars: a longer result is cut, with a note under `truncated`.
    Raises ValueError, TypeError or RecursionError for values that JSON cannot hold.
    """
    error = {} if outcome.error is None else {"error": outcome.error}
    data = {**outcome.data, **error} if error else dict(outcome.data)
    text, is_whole = _beginning({**error, **data})
    if is_whole and len(text) <= limit_chars:
        return text
    length = f"{len(text)}" if is_whole else f"more than {MAX_ENCODED_CHARS}"
    note = f"cut to fit: it had {length} characters, at most {limit_chars} are shown"
    for entries, chars in CUT_STEPS:
        cutter = _ResultTruncator(entries, chars, limit_chars // 2)
        cut, is_whole = _beginning({**error, "truncated": note, **cutter.cut(data)})
        if is_whole and len(cut) <= limit_chars:
            return cut
    # Only a quarter, because encoding it again escapes its quotes, which makes it longer.
    beginning = text[: limit_chars // 4]
    return _beginning({**error, "truncated": note, "beginning": beginning})[0]


def is_error(result: str) -> bool:
    """Returns True if a result of `as_json` is an error."""
    decoded = json.loads(result)
    return isinstance(decoded, dict) and "error" in decoded


def spoken_error(result: str) -> str | None:
    """Returns the sentence for the user in a result of `as_json` that is an error; None: it has
    none."""
    decoded = json.loads(result)
    speech = decoded.get("speech") if isinstance(decoded, dict) and "error" in decoded else None
    return speech if isinstance(speech, str) and speech else None


def refused_result(reason: str = "") -> str:
    """Returns the result of a call that the client did not allow. reason: its reason, or empty."""
    message = f"the user did not allow it{': ' if reason else ''}{reason}"
    return as_json(ToolOutcome({"message": message}, error="not_approved"))


def _beginning(data: Mapping[str, object]) -> tuple[str, bool]:
    """Returns (JSON, True if it is complete). Encoding stops soon after MAX_ENCODED_CHARS."""
    parts: list[str] = []
    length = 0
    for part in _encoder.iterencode(data):
        parts.append(part)
        length += len(part)
        if length > MAX_ENCODED_CHARS:
            break
    # A lone surrogate cannot be encoded as UTF-8, so it could not be sent to a model.
    text = "".join(parts).encode("utf-8", "replace").decode("utf-8")
    return text, length <= MAX_ENCODED_CHARS


class _ResultTruncator:
    """Cuts a result: keeps the first entries of each list and table, and notes how many are left
    out.

    entries: most entries of each. chars: most characters of each text. nodes: most values in all.
    """

    def __init__(self, entries: int, chars: int, nodes: int) -> None:
        self._entries, self._chars = entries, chars
        self._nodes = nodes
        "Number of values that may still be kept. More would not fit anyway."

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
