"""Commands that come by topic. Decoding does no I/O and knows no device."""

import re
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

import msgspec

from core.errors import PayloadTooLarge, RequestError
from core.http.json_body import decode_json_body
from devices.api.views import SpokenNotice, SpokenText
from devices.fleet.presence import DeviceNotification
from devices.mqtt.topics import CommandTopic

MAX_PAYLOAD_BYTES = 8192
"Limit of a command's payload: the longest announcement, in letters of four bytes, with its URL."

MAX_COMMANDS_PER_MINUTE = 120
"""Limit for all commands together. An automation that calls itself would otherwise keep all devices
speaking."""

MAX_RUNNING = 16
"""Most commands that run at once. An announcement runs until its device has accepted it, which may
take 20 s."""

_VOLUME = re.compile(rb"\s*(\d{1,3})(?:\.0+)?\s*")
"A volume as text. Home Assistant sends numbers with a decimal point where its step is a fraction."


class AreaAnnouncePayload(SpokenNotice, frozen=True, forbid_unknown_fields=True):
    """An announcement for a room, or for all devices, as JSON."""

    area: str = ""
    "Name of the room; empty: all connected devices."


@dataclass(frozen=True, slots=True)
class Announce:
    """Announces something on a device, on those of an area, or on all connected ones."""

    notice: DeviceNotification
    device_id: str = ""
    area: str = ""


@dataclass(frozen=True, slots=True)
class StartConversation:
    """Speaks a text on a device, which then listens for the answer to it."""

    notice: DeviceNotification
    device_id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stops what a device speaks or thinks about."""

    device_id: str


@dataclass(frozen=True, slots=True)
class SetVolume:
    """Sets the volume of a device's loudspeaker."""

    device_id: str
    volume: int
    "0 to 100."


Command = Announce | StartConversation | Stop | SetVolume

PayloadT = TypeVar("PayloadT", bound=SpokenText)


def decode_command(topic: CommandTopic, payload: bytes) -> Command:
    """Returns the command. Raises PayloadTooLarge, or RequestError invalid_json or invalid_value,
    which names what is allowed."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(f"{len(payload)} bytes; the limit is {MAX_PAYLOAD_BYTES}")
    match topic.name:
        case "announce":
            if topic.device_id:
                wanted = _announcement(payload, SpokenNotice)
                return Announce(_notice(wanted, wanted.audio_url), topic.device_id)
            for_area = _announcement(payload, AreaAnnouncePayload)
            notice = _notice(for_area, for_area.audio_url)
            return Announce(notice, area=for_area.area.strip())
        case "start_conversation":
            notice = _notice(_announcement(payload, SpokenText))
            return StartConversation(replace(notice, starts_conversation=True), topic.device_id)
        case "stop":
            return Stop(topic.device_id)
        case "volume":
            return SetVolume(topic.device_id, _volume(payload))
        case _:
            assert_never(topic.name)


def _announcement(payload: bytes, wanted: type[PayloadT]) -> PayloadT:
    """Reads JSON if the payload begins like an object, else a text."""
    stripped = payload.strip()
    if stripped.startswith(b"{"):
        return decode_json_body(stripped, wanted)
    try:
        text = stripped.decode()
    except UnicodeDecodeError:
        raise _invalid("the text must be UTF-8") from None
    return decode_json_body(msgspec.json.encode({"text": text}), wanted)


def _notice(payload: SpokenText, audio_url: str = "") -> DeviceNotification:
    return DeviceNotification(
        text=payload.text, audio_url=audio_url, voice=payload.voice, language=payload.language
    )


def _volume(payload: bytes) -> int:
    found = _VOLUME.fullmatch(payload)
    if found is None or int(found[1]) > 100:
        raise _invalid("a volume is a whole number from 0 to 100")
    return int(found[1])


def _invalid(message: str) -> RequestError:
    return RequestError(message, code="invalid_value")
