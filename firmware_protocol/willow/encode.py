"""Encodes the messages to a device, one value to one WebSocket text message."""

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import assert_never

import msgspec

from core.errors import PayloadTooLarge
from firmware_protocol.willow.messages import (
    CancelNotify,
    ConfigMessage,
    EndpointResult,
    Identify,
    Notify,
    NvsMessage,
    OtaStart,
    Restart,
    ToDevice,
    WakeResult,
)

MAX_MESSAGE_BYTES = 4000
"""Longest message. The firmware's WebSocket client has a buffer of 4096 bytes. It takes each part
of a longer message for a message of its own, so that nothing of it is understood."""

ELLIPSIS = "…"

_UNSPEAKABLE = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")
"""Blanks and control characters. The firmware appends the spoken text to a URL without escaping: a
line break would end the first line of the request."""


def encode(message: ToDevice) -> str:
    """Returns a message of at most MAX_MESSAGE_BYTES in UTF-8. Long texts are cut at a word.

    Raises PayloadTooLarge if no text can be cut.
    """
    match message:
        case EndpointResult(ok, speech):
            return _encode_cut(
                lambda text: {"result": {"ok": ok, "speech": text}}, one_line(speech)
            )
        case Notify(text=str(text)):
            return _encode_cut(lambda cut: _notify(message, cut), one_line(text))
        case _:
            return _encode_whole(_fields(message))


def one_line(text: str) -> str:
    """Returns the text with blanks and control characters replaced by single spaces."""
    text = text.encode("utf-8", "replace").decode()  # replaces lone surrogates
    return _UNSPEAKABLE.sub(" ", text).strip()


def _fields(message: ToDevice) -> dict[str, object]:
    match message:
        case WakeResult(won):
            return {"wake_result": {"won": won}}
        case EndpointResult(ok, speech):
            return {"result": {"ok": ok, "speech": speech}}
        case Notify(text=text):
            return _notify(message, text)
        case CancelNotify(number):
            return {"cmd": "notify", "data": {"id": number, "cancel": True}}
        case Identify():
            return {"cmd": "identify"}
        case Restart():
            return {"cmd": "restart"}
        case OtaStart(url):
            return {"cmd": "ota_start", "ota_url": url}
        case ConfigMessage(values):
            return {"config": dict(values)}
        case NvsMessage(was_url, ssid, psk):
            was = {"URL": was_url} if was_url else {}
            named = {"SSID": ssid, "PSK": psk}
            wifi = {name: value for name, value in named.items() if value}
            spaces = {"WAS": was, "WIFI": wifi}
            return {"nvs": {name: space for name, space in spaces.items() if space}}
        case _:
            assert_never(message)


def _notify(message: Notify, text: str | None) -> dict[str, object]:
    values = {
        "id": message.id,
        "text": text,
        "audio_url": message.audio_url,
        "repeat": message.repeat,
        "volume": message.volume,
        "backlight": message.backlight,
        "backlight_max": message.backlight_max,
        "strobe_period_ms": message.strobe_period_ms,
    }
    data = {name: value for name, value in values.items() if value is not None}
    return {"cmd": "notify", "data": data}


def _encode_cut(fields: Callable[[str], dict[str, object]], text: str) -> str:
    """Returns the message with as much of `text` as fits.

    The length of a character depends on its escape, so sizes are measured on the encoded message.
    """
    text = text[: MAX_MESSAGE_BYTES + 1]
    whole = msgspec.json.encode(fields(text))
    if len(whole) <= MAX_MESSAGE_BYTES:
        return whole.decode()
    sizes = range(len(text))
    fits = bisect_right(sizes, MAX_MESSAGE_BYTES, key=lambda size: _size(fields, text[:size])) - 1
    return _encode_whole(fields(_cut_at_word(text[: max(0, fits)])))


def _size(fields: Callable[[str], dict[str, object]], text: str) -> int:
    return len(msgspec.json.encode(fields(text + ELLIPSIS)))


def _cut_at_word(text: str) -> str:
    words = text[: text.rfind(" ")] if " " in text else text
    return words.rstrip() + ELLIPSIS if words.strip() else ""


def _encode_whole(fields: dict[str, object]) -> str:
    whole = msgspec.json.encode(fields)
    if len(whole) > MAX_MESSAGE_BYTES:
        raise PayloadTooLarge(
            f"a message of {len(whole)} bytes; devices accept {MAX_MESSAGE_BYTES}"
        )
    return whole.decode()
