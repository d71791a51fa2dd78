"""Decodes the messages of a device: one WebSocket text message to one value, of bounded size."""

import math
import re
from collections.abc import Mapping

import msgspec

from core.errors import RemoteProtocolError
from firmware_protocol.willow.messages import (
    Endpoint,
    FromDevice,
    GetConfig,
    Goodbye,
    Hello,
    NotifyDone,
    UnknownMessage,
    WakeEnd,
    WakeStart,
)

MAX_MESSAGE_BYTES = 16 * 1024
"""Longest message. The longest known one is an Endpoint: it holds the inference server's answer, of
which the firmware reads 2048 bytes and prints them with tabs."""

MAX_NAME_CHARS = 64
"Longest hostname (a label in RFC 1123 has up to 63) and name of a board."

MAX_TEXT_CHARS = 4096
MAX_LANGUAGE_CHARS = 16
MAX_ID = 2**53
"Largest id: cJSON keeps numbers as doubles."

_SHOWN_NAMES, _SHOWN_CHARS = 4, 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]*")


class MalformedMessage(RemoteProtocolError):
    """Raised for a message that is no JSON, too long, or known but with an invalid field."""

    code = "malformed_message"


def decode(message: str | bytes) -> FromDevice:
    """Returns the message as a value.

    Raises MalformedMessage, which names the field and the allowed values, never the value itself.
    """
    fields = _object(message)
    # The order is WAS's. A message has only one of these keys; wake words come first, as they are
    # urgent.
    if "wake_start" in fields:
        return WakeStart(_volume_db(_inner(fields, "wake_start")))
    if "wake_end" in fields:
        return WakeEnd()
    if "notify_done" in fields:
        return NotifyDone(_id(fields["notify_done"]))
    if "cmd" in fields:
        return _command(fields)
    if "goodbye" in fields:
        return Goodbye(*_identity(fields, "goodbye"))
    if "hello" in fields:
        return Hello(*_identity(fields, "hello"))
    return _unknown(fields)


def _object(message: str | bytes) -> dict[str, object]:
    # A character has at least one byte, so a text that is too long is refused before encoding.
    if len(message) <= MAX_MESSAGE_BYTES and isinstance(message, str):
        message = message.encode("utf-8", "replace")
    if len(message) > MAX_MESSAGE_BYTES:
        raise MalformedMessage(f"a message of more than {MAX_MESSAGE_BYTES} bytes, the limit")
    try:
        found = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise MalformedMessage("a message must be a JSON object; this one is not JSON") from None
    if not isinstance(found, dict):
        raise MalformedMessage("a message must be a JSON object; this one is other JSON")
    return found


def _command(fields: Mapping[str, object]) -> FromDevice:
    match fields["cmd"]:
        case "get_config":
            return GetConfig()
        case "endpoint":
            data = _inner(fields, "data")
            return Endpoint(
                _text(data, "text", MAX_TEXT_CHARS), _text(data, "language", MAX_LANGUAGE_CHARS)
            )
        case str() as name:
            return UnknownMessage((f"cmd {name[:_SHOWN_CHARS]}",))
        case _:
            raise MalformedMessage("cmd must be text")


def _unknown(fields: Mapping[str, object]) -> UnknownMessage:
    return UnknownMessage(tuple(name[:_SHOWN_CHARS] for name in list(fields)[:_SHOWN_NAMES]))


def _inner(fields: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = fields.get(name)
    if not isinstance(found, dict):
        raise MalformedMessage(f"{name} must be an object")
    return found


def _identity(fields: Mapping[str, object], name: str) -> tuple[str, str, str]:
    """Returns (hostname, name of the board, MAC address)."""
    fields = _inner(fields, name)
    return _name(fields, "hostname"), _name(fields, "hw_type"), _mac(fields.get("mac_addr"))


def _name(fields: Mapping[str, object], name: str) -> str:
    found = fields.get(name)
    is_good = isinstance(found, str) and len(found) <= MAX_NAME_CHARS and _NAME.fullmatch(found)
    if not is_good:
        raise MalformedMessage(f"{name} must be 1 to {MAX_NAME_CHARS} letters, digits, . _ + -")
    return str(found)


def _mac(found: object) -> str:
    is_good = (
        isinstance(found, list)
        and len(found) == 6
        and all(type(byte) is int and 0 <= byte <= 255 for byte in found)
    )
    if not is_good:
        raise MalformedMessage("mac_addr must be a list of six numbers of 0 to 255")
    assert isinstance(found, list)
    return ":".join(f"{byte:02x}" for byte in found)


def _volume_db(fields: Mapping[str, object]) -> float | None:
    """Returns the volume in dB; None if it is absent or not finite (cJSON writes NaN as null)."""
    found = fields.get("wake_volume")
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise MalformedMessage("wake_volume must be a number: dB")
    return float(found) if abs(found) < 1e6 and math.isfinite(found) else None


def _id(found: object) -> int:
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not is_number or not -MAX_ID <= found <= MAX_ID or found != int(found):  # type: ignore[operator, call-overload]
        raise MalformedMessage("notify_done must be a whole number: the notification's id")
    return int(found)  # type: ignore[call-overload, no-any-return]


def _text(data: Mapping[str, object], name: str, max_chars: int) -> str:
    """Returns a text on one line; empty if it is absent, as an inference server may omit it."""
    found = data.get(name)
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > max_chars:
        raise MalformedMessage(f"data.{name} must be text of at most {max_chars} characters")
    return " ".join(found.split())
