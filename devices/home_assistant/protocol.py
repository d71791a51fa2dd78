"""Codec of Home Assistant's WebSocket messages: commands with increasing ids, and answers. No I/O.

<https://developers.home-assistant.io/docs/api/websocket>. All received messages are checked here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import msgspec

from core.errors import RemoteProtocolError
from devices.home_assistant.errors import HomeAssistantCommandError

MAX_FRAME_BYTES = 32 * 2**20
"The states of 20 000 entities, with their attributes, are some 15 MB."

MAX_MESSAGES = 10_000
"""Limit per coalesced frame. Home Assistant puts all messages of one step of its event loop into
one frame."""

MAX_MESSAGE_CHARS = 300
"Limit of the text of an error that is kept."


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Answer to one command."""

    id: int
    value: object
    "Result of the command; None for a pong."
    error: HomeAssistantCommandError | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """Event of a subscription. id: that of the command that subscribed."""

    id: int
    event: Mapping[str, object]


class CommandEncoder:
    """Encodes commands of one connection with ids that begin at 1 and increase."""

    def __init__(self) -> None:
        self._ids = count(1)

    def encode(self, kind: str, fields: Mapping[str, object]) -> tuple[int, str]:
        """Returns the command's id and its frame."""
        number = next(self._ids)
        message = {"id": number, "type": kind, **fields}
        return number, msgspec.json.encode(message).decode()


def decode(frame: str) -> Iterator[CommandResult | SubscriptionEvent]:
    """Yields the messages of a frame, which may be an array of messages. Unknown kinds are skipped.

    Raises RemoteProtocolError for a malformed frame.
    """
    messages = _parsed(frame)
    if not isinstance(messages, list):
        messages = [messages]
    if len(messages) > MAX_MESSAGES:
        raise RemoteProtocolError(
            f"Home Assistant: {len(messages)} messages in a frame, at most {MAX_MESSAGES}"
        )
    for message in messages:
        yield from _read(message)


def decode_greeting(frame: str) -> tuple[str, str]:
    """Returns kind and text of a message before the authorization is complete: `auth_required`,
    `auth_ok` or `auth_invalid`. Raises RemoteProtocolError."""
    message = _parsed(frame)
    if isinstance(message, list) and len(message) == 1:
        message = message[0]
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise RemoteProtocolError("Home Assistant: a message without type before auth_ok")
    text = message.get("message", message.get("ha_version", ""))
    return message["type"], str(text)[:MAX_MESSAGE_CHARS]


def _parsed(frame: str) -> object:
    try:
        return msgspec.json.decode(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError("Home Assistant: a frame is not JSON") from error


def _read(message: object) -> Iterator[CommandResult | SubscriptionEvent]:
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise RemoteProtocolError("Home Assistant: a message without type")
    kind, number = message["type"], message.get("id")
    if kind not in ("result", "event", "pong"):
        return
    if not isinstance(number, int) or isinstance(number, bool):
        raise RemoteProtocolError(f"Home Assistant: a {kind} without id")
    match kind:
        case "pong":
            yield CommandResult(number, None)
        case "event":
            event = message.get("event")
            yield SubscriptionEvent(number, event if isinstance(event, dict) else {})
        case "result" if message.get("success") is True:
            yield CommandResult(number, message.get("result"))
        case "result":
            yield CommandResult(number, None, _error(message.get("error")))


def _error(error: object) -> HomeAssistantCommandError:
    fields: Mapping[str, object] = error if isinstance(error, dict) else {}
    code, text = str(fields.get("code", "unknown_error")), str(fields.get("message", ""))
    return HomeAssistantCommandError(code[:MAX_MESSAGE_CHARS], text[:MAX_MESSAGE_CHARS])
