"""Bodies of WAS's REST, read and bounded."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from core.errors import RequestError

MAX_DEPTH = 32
"Objects in objects; what WAS keeps has three. Settings are merged and masked by recursion."


def read_object(body: bytes) -> dict[str, Any]:
    """Raises RequestError invalid_json."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestError("the body must be a JSON object", code="invalid_json")
    if _is_deep(found):
        raise RequestError(f"the body is more than {MAX_DEPTH} levels deep", code="invalid_json")
    return found


def read_path(body: bytes) -> tuple[str, str]:
    """Version and board of `{"path": "VERSION/BOARD.bin"}`, as they came. Raises RequestError
    invalid_json."""
    try:
        found = msgspec.json.decode(body, type=Mapping[str, str])["path"]
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError):
        raise RequestError('the body must be JSON {"path": "..."}', code="invalid_json") from None
    version, _, file = found.partition("/")
    return version, file.removesuffix(".bin")


def _is_deep(value: object) -> bool:
    """Level by level: a walk by recursion would fail on what it looks for."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for one in level for inner in _within(one)]
        if not level:
            return False
    return True


def _within(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
