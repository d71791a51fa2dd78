"""Converts text frames to messages and back."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from firmware_protocol.xiaozhi.errors import BadMessage
from firmware_protocol.xiaozhi.messages import (
    AbortMessage,
    AlertMessage,
    CustomMessage,
    DeviceHello,
    DeviceMessage,
    IgnoredMessage,
    ListenDetect,
    ListenStart,
    ListenStop,
    LlmMessage,
    McpAnswer,
    McpRequest,
    PingMessage,
    PongMessage,
    ServerHello,
    ServerMessage,
    SttMessage,
    SystemMessage,
    TtsMessage,
)

MAX_TEXT_BYTES = 65_535
"Longest text frame, which is the largest that stock firmware can send."

MAX_REASON_CHARS = 200
"Longest text of an error, which may quote the message."

MAX_DEPTH = 32
"Deepest nesting, so that no decoder runs out of stack. A tool's schema has some six levels."

T = TypeVar("T", bound=Struct)

_LISTEN: Mapping[object, type[ListenStart | ListenStop | ListenDetect]] = {
    "start": ListenStart,
    "stop": ListenStop,
    "detect": ListenDetect,
}
_DEVICE_TYPES: Mapping[str, type[DeviceHello | AbortMessage | PingMessage | McpAnswer]] = {
    "hello": DeviceHello,
    "abort": AbortMessage,
    "ping": PingMessage,
    "mcp": McpAnswer,
}
_SERVER_TYPES: Mapping[
    str,
    type[
        ServerHello
        | SttMessage
        | LlmMessage
        | TtsMessage
        | McpRequest
        | SystemMessage
        | AlertMessage
        | CustomMessage
        | PongMessage
    ],
] = {
    "hello": ServerHello,
    "stt": SttMessage,
    "llm": LlmMessage,
    "tts": TtsMessage,
    "mcp": McpRequest,
    "system": SystemMessage,
    "alert": AlertMessage,
    "custom": CustomMessage,
    "pong": PongMessage,
}


def decode_device_message(text: str | bytes) -> DeviceMessage:
    """Returns a message from a device; IgnoredMessage for an unknown type. Raises BadMessage."""
    fields, kind = _object(text)
    if kind == "listen":
        state = fields.get("state")
        found = _LISTEN.get(state) if isinstance(state, str) else None
        if found is None:
            raise BadMessage("bad_message", "listen: state must be start, stop or detect")
        return _convert(found, fields, kind)
    message_type = _DEVICE_TYPES.get(kind)
    return IgnoredMessage(kind) if message_type is None else _convert(message_type, fields, kind)


def decode_server_message(text: str | bytes) -> ServerMessage:
    """Returns a message from a server, as a device reads it. Raises BadMessage."""
    fields, kind = _object(text)
    message_type = _SERVER_TYPES.get(kind)
    return IgnoredMessage(kind) if message_type is None else _convert(message_type, fields, kind)


def encode_message(message: DeviceMessage | ServerMessage) -> str:
    """Returns the text frame of a message."""
    return msgspec.json.encode(message).decode()


def _object(text: str | bytes) -> tuple[dict[str, object], str]:
    if len(text) > MAX_TEXT_BYTES:
        raise BadMessage("too_large", f"a text of {len(text)}; the limit is {MAX_TEXT_BYTES} bytes")
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadMessage("bad_json", f"not JSON: {_brief(str(error))}") from None
    if not isinstance(fields, dict):
        raise BadMessage("bad_message", "a message must be a JSON object")
    if _is_deeper(fields, MAX_DEPTH):
        raise BadMessage("bad_json", f"nested more than {MAX_DEPTH} deep")
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise BadMessage("bad_message", "type is missing, or no text")
    return fields, kind


def _convert(message_type: type[T], fields: dict[str, object], kind: str) -> T:
    try:
        return msgspec.convert(fields, message_type)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise BadMessage("bad_message", f"{kind}: {_brief(str(error))}") from None


def _brief(text: str) -> str:
    """Returns a short printable text for a log, as an error may quote what the device sent."""
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_REASON_CHARS]


def _is_deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return levels == 0 or any(_is_deeper(item, levels - 1) for item in inner)
    return False
