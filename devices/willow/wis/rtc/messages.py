"""Codec of the texts on a call's data channel: `{type, message, obj}`. No I/O."""

from typing import Any, TypeAlias

import msgspec

from core.errors import RequestError
from devices.willow.wis.params import MAX_SHOWN_CHARS, shortened

MAX_MESSAGE_CHARS = 16_384
"""Limit of a message. The largest of a client, `stop` with all its options, has a few hundred
characters."""


class RtcPing(msgspec.Struct, frozen=True, tag="ping"):
    """Request for a `pong`."""

    message: str | None = None
    obj: Any = None


class RtcStart(msgspec.Struct, frozen=True, tag="start"):
    """Beginning of a recording."""

    message: str | None = None
    obj: dict[str, Any] | None = None
    """The probable parameters of `stop`, so that recognition can begin. Earshot's own parameter
    `partials` asks for the words while they are spoken."""


class RtcStop(msgspec.Struct, frozen=True, tag="stop"):
    """End of a recording: asks for its text."""

    message: str | None = None
    obj: dict[str, Any] | None = None
    """The parameters of the query: model, beam_size, detect_language, force_language, translate,
    task, return_language."""


RtcMessage: TypeAlias = RtcPing | RtcStart | RtcStop
"A message of the client."

_DECODER: msgspec.json.Decoder[RtcMessage] = msgspec.json.Decoder(RtcMessage)


def read_message(text: str | bytes) -> RtcMessage:
    """Decodes a message. Raises RequestError, which says what is allowed."""
    if not isinstance(text, str):
        raise _bad("the message is binary")
    if len(text) > MAX_MESSAGE_CHARS:
        raise _bad(f"it has {len(text)} characters, limit {MAX_MESSAGE_CHARS}")
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _bad(shortened(str(error), 2 * MAX_SHOWN_CHARS)) from None


def pong(message: str | None) -> str:
    """Encodes the answer to a `ping`."""
    return _text({"type": "pong", "message": message or ""})


def log(message: str) -> str:
    """Encodes a text for the client's log."""
    return _text({"type": "log", "message": message})


def failed(message: str) -> str:
    """Encodes an error."""
    return _text({"type": "error", "message": message})


def infer(text: str, language: str, translation: str | None, model: str) -> str:
    """Encodes the result of a recording."""
    found = {"text": text, "language": language, "model": model}
    if translation is not None:
        found["translation"] = translation
    return _text({"type": "infer", "message": "", "obj": found})


def partial(text: str, stable: str) -> str:
    """Encodes a partial. It is Earshot's own message, unknown to other clients, so `start` has to
    ask for it."""
    return _text({"type": "partial", "obj": {"text": text, "stable": stable}})


def _text(message: dict[str, object]) -> str:
    return msgspec.json.encode(message).decode()


def _bad(why: str) -> RequestError:
    return RequestError(
        f'invalid message: {why}; send JSON {{"type": "ping", "start" or "stop", "obj": {{...}}}}',
        code="invalid_message",
    )
