"""Messages of Twilio Media Streams: JSON in text frames of a WebSocket. No I/O, no clock.

Source: Twilio's page "Media Streams - WebSocket Messages". Sound is G.711 mu-law at 8 kHz in
Base64, 20 ms in each message of Twilio's. `sequenceNumber` and `timestamp` are not read: TCP keeps
the order, and a call has no gaps.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from core.errors import RemoteProtocolError
from devices.telephone.digits import DIGITS

MAX_MESSAGE_BYTES = 32_768
"""Longest message. Sound of a second has 11 kB in Base64; the parameters of a stream are limited by
Twilio to 500 characters each."""

MAX_SOUND_BYTES = 8_000
"Longest sound of one message: a second. Twilio sends 160 bytes."

MAX_NAME_CHARS = 500
"Longest identifier, name of a mark or parameter."

MAX_PARAMETERS = 99
"Most parameters of a stream that Twilio allows."


@dataclass(frozen=True, slots=True)
class StreamConnected:
    """First message on the WebSocket."""


@dataclass(frozen=True, slots=True)
class StreamStarted:
    """The call begins."""

    stream_sid: str
    call_sid: str
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    "The `<Parameter>`s of the TwiML."


@dataclass(frozen=True, slots=True)
class StreamSound:
    """Sound of the caller: one byte for each sample."""

    mu_law: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StreamKey:
    """The caller pressed a key."""

    digit: str


@dataclass(frozen=True, slots=True)
class StreamMark:
    """Twilio has played, or dropped after a `clear`, what was sent before this mark."""

    name: str


@dataclass(frozen=True, slots=True)
class StreamStopped:
    """The call is over."""


@dataclass(frozen=True, slots=True)
class OtherStreamMessage:
    """A message that this version does not use."""

    event: str


StreamMessage = (
    StreamConnected
    | StreamStarted
    | StreamSound
    | StreamKey
    | StreamMark
    | StreamStopped
    | OtherStreamMessage
)


class _StreamFormatJson(msgspec.Struct, rename="camel"):
    encoding: str = "audio/x-mulaw"
    sample_rate: int = 8000
    channels: int = 1


class _StreamStartJson(msgspec.Struct, rename="camel"):
    stream_sid: str
    call_sid: str
    custom_parameters: dict[str, str] = {}
    media_format: _StreamFormatJson = msgspec.field(default_factory=_StreamFormatJson)


class _StreamMediaJson(msgspec.Struct):
    payload: str
    track: str = "inbound"


class _StreamDtmfJson(msgspec.Struct):
    digit: str


class _StreamMarkJson(msgspec.Struct):
    name: str


class _StreamMessageJson(msgspec.Struct):
    event: str
    start: _StreamStartJson | None = None
    media: _StreamMediaJson | None = None
    dtmf: _StreamDtmfJson | None = None
    mark: _StreamMarkJson | None = None


_DECODER = msgspec.json.Decoder(_StreamMessageJson)


def decode_stream_message(text: str | bytes) -> StreamMessage:
    """Reads one message of Twilio's. Raises RemoteProtocolError."""
    if len(text) > MAX_MESSAGE_BYTES:
        raise RemoteProtocolError(
            f"a message of {len(text)} bytes; allowed: at most {MAX_MESSAGE_BYTES}"
        )
    try:
        message = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RemoteProtocolError(
            "a message that is no message of Media Streams; allowed: JSON objects as Twilio"
            " documents them"
        ) from error
    match message:
        case _StreamMessageJson(event="media", media=_StreamMediaJson() as media):
            return _sound(media)
        case _StreamMessageJson(event="mark", mark=_StreamMarkJson(name=name)):
            return StreamMark(_checked(name, "mark.name"))
        case _StreamMessageJson(event="dtmf", dtmf=_StreamDtmfJson(digit=digit)):
            if digit.upper() not in DIGITS:
                raise RemoteProtocolError("a DTMF digit that no telephone has; allowed: 0-9*#A-D")
            return StreamKey(digit.upper())
        case _StreamMessageJson(event="connected"):
            return StreamConnected()
        case _StreamMessageJson(event="start", start=_StreamStartJson() as start):
            return _started(start)
        case _StreamMessageJson(event="stop"):
            return StreamStopped()
        case _StreamMessageJson(event="media" | "mark" | "dtmf" | "start" as event):
            raise RemoteProtocolError(f"a message {event!r} without its object {event!r}")
        case _:
            return OtherStreamMessage(message.event[:MAX_NAME_CHARS])


def encode_sound(stream_sid: str, mu_law: bytes) -> str:
    """Returns the message that has Twilio play sound, after what it has already."""
    payload = b64encode(mu_law).decode()
    return _encoded("media", stream_sid, media={"payload": payload})


def encode_mark(stream_sid: str, name: str) -> str:
    """Returns the message that Twilio sends back when all sound before it is played, or when a
    `clear` dropped that."""
    return _encoded("mark", stream_sid, mark={"name": name})


def encode_clear(stream_sid: str) -> str:
    """Returns the message that drops all sound that is not played yet."""
    return _encoded("clear", stream_sid)


def _encoded(event: str, stream_sid: str, **fields: Any) -> str:
    message = {"event": event, "streamSid": stream_sid, **fields}
    return msgspec.json.encode(message).decode()


def _sound(media: _StreamMediaJson) -> StreamSound | OtherStreamMessage:
    """Raises RemoteProtocolError."""
    if media.track != "inbound":
        return OtherStreamMessage("media of another track")
    try:
        mu_law = b64decode(media.payload, validate=True)
    except ValueError as error:
        raise RemoteProtocolError("media.payload must be Base64") from error
    if len(mu_law) > MAX_SOUND_BYTES:
        raise RemoteProtocolError(
            f"sound of {len(mu_law)} bytes in one message; allowed: at most {MAX_SOUND_BYTES}"
        )
    return StreamSound(mu_law)


def _started(start: _StreamStartJson) -> StreamStarted:
    """Raises RemoteProtocolError."""
    if start.media_format != _StreamFormatJson():
        raise RemoteProtocolError(
            "start.mediaFormat must be audio/x-mulaw with 8000 Hz and 1 channel"
        )
    if len(start.custom_parameters) > MAX_PARAMETERS:
        raise RemoteProtocolError(
            f"{len(start.custom_parameters)} parameters; allowed: at most {MAX_PARAMETERS}"
        )
    return StreamStarted(
        _checked(start.stream_sid, "start.streamSid"),
        _checked(start.call_sid, "start.callSid"),
        {
            _checked(name, "the name of a parameter"): _checked(value, "a parameter")
            for name, value in start.custom_parameters.items()
        },
    )


def _checked(text: str, field_name: str) -> str:
    """Raises RemoteProtocolError."""
    if len(text) > MAX_NAME_CHARS:
        raise RemoteProtocolError(
            f"{field_name} has {len(text)} characters; allowed: at most {MAX_NAME_CHARS}"
        )
    return text
