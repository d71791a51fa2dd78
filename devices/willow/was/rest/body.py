"""Bodies of WAS's REST requests, with limits."""

from collections.abc import Iterable, Mapping

import msgspec

from core.errors import RequestError

MAX_DEPTH = 32
"""Limit of nested objects: settings are merged and masked by recursion. WAS's own settings have
three levels."""


def read_object(body: bytes) -> dict[str, object]:
    """Reads a JSON object. Raises RequestError invalid_json."""
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
    """Reads version and board of `{"path": "VERSION/BOARD.bin"}`, unchecked.

    Raises RequestError invalid_json.
    """
    try:
        found = msgspec.json.decode(body, type=Mapping[str, str])["path"]
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError):
        raise RequestError('the body must be JSON {"path": "..."}', code="invalid_json") from None
    version, _, file = found.partition("/")
    return version, file.removesuffix(".bin")


def _is_deep(value: object) -> bool:
    """Returns True if the value has too many levels.

    Looks level by level: recursion would fail on exactly the values that it looks for.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _children(value)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
