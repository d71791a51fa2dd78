"""Home Assistant's WebSocket messages, sans I/O: commands with increasing ids, answers to them.

<https://developers.home-assistant.io/docs/api/websocket>. Whatever comes is checked here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from core.errors import RemoteProtocolError
from devices.home_assistant.errors import HomeAssistantCommandError

MAX_FRAME_BYTES = 32 * 2**20
"The states of 20 000 entities, with their attributes, are some 15 MB."

MAX_MESSAGES = 10_000
"In one coalesced frame; Home Assistant sends what has gathered within one step of its loop."

MAX_MESSAGE_CHARS = 300
"Kept of what it says about an error."


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The answer to one command."""

    id: int
    value: Any
    "Whatever the command gives; None for a pong."
    error: HomeAssistantCommandError | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """Something happened that the command `id` subscribed to."""

    id: int
    event: Mapping[str, Any]


class CommandEncoder:
    """Ids of one connection: they begin at 1, and each is greater than the one before."""

    def __init__(self) -> None:
        self._ids = count(1)

    def encode(self, kind: str, fields: Mapping[str, Any]) -> tuple[int, str]:
        """The command's id and its frame."""
        number = next(self._ids)
        message = {"id": number, "type": kind, **fields}
        return number, msgspec.json.encode(message).decode()


def decode(frame: str) -> Iterator[CommandResult | SubscriptionEvent]:
    """The messages of one frame, which may be an array of them. Raises RemoteProtocolError for
    what is none; kinds that are not known are passed over."""
    messages = _parsed(frame)
    if not isinstance(messages, list):
        messages = [messages]
    if len(messages) > MAX_MESSAGES:
        raise RemoteProtocolError(
            f"Home Assistant: {len(messages)} messages in a frame, at most {MAX_MESSAGES}"
        )
    for message in messages:
        yield from _read(message)


def greeting(frame: str) -> tuple[str, str]:
    """Kind and text of a message before the connection is authorized: `auth_required`, `auth_ok`,
    `auth_invalid`. Raises RemoteProtocolError."""
    message = _parsed(frame)
    if isinstance(message, list) and len(message) == 1:
        message = message[0]
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise RemoteProtocolError("Home Assistant: a message without type before auth_ok")
    said = message.get("message", message.get("ha_version", ""))
    return message["type"], str(said)[:MAX_MESSAGE_CHARS]


def _parsed(frame: str) -> Any:
    try:
        return msgspec.json.decode(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError("Home Assistant: a frame is not JSON") from error


def _read(message: Any) -> Iterator[CommandResult | SubscriptionEvent]:
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


def _error(error: Any) -> HomeAssistantCommandError:
    told: Mapping[str, Any] = error if isinstance(error, dict) else {}
    code, text = str(told.get("code", "unknown_error")), str(told.get("message", ""))
    return HomeAssistantCommandError(code[:MAX_MESSAGE_CHARS], text[:MAX_MESSAGE_CHARS])
