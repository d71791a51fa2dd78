"""Holds the state that MQTT shows as frozen values, and makes the retained messages of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from devices.fleet.directory import Device
from devices.fleet.presence import DeviceActivity
from devices.mqtt.discovery import device_config, person_config, server_config
from devices.mqtt.topics import Topics

ONLINE, OFFLINE = b"online", b"offline"
"Payloads of the availability. Home Assistant expects them."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """State of an approved device."""

    device: Device
    activity: DeviceActivity | None = None
    "None: it is not connected."
    latency_ms: float | None = None
    "Time from the end of speech to the first sound of the last answer; None: not known."
    waiting: int = 0
    "Number of announcements that wait for it."


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonState:
    """State of a person whose voice the server knows."""

    id: str
    name: str = field(repr=False)
    heard: datetime | None = None
    "Time at which the voice was heard last; None: not since the server started."
    device_name: str = ""
    "Name of the device that heard it; empty: a client that is no device."
    area: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of everything that is shown, at one moment."""

    version: str
    "Version of this server."
    sessions: int
    latency_ms: float | None
    "Time from the end of speech to the first sound of the last answer; None: there was none."
    devices: Sequence[DeviceState]
    people: Sequence[PersonState]
    "Empty where people are not published."


def retained_messages(
    snapshot: Snapshot, topics: Topics, *, has_words: bool
) -> Mapping[str, bytes]:
    """Returns every retained message by topic. What was published before and is missing here is to
    be removed. `has_words`: words are published."""
    messages = dict(_server_messages(snapshot, topics, has_words=has_words))
    for shown in snapshot.devices:
        messages |= dict(_device_messages(shown, topics, snapshot.version, has_words=has_words))
    for person in snapshot.people:
        config = person_config(person.id, person.name, topics, snapshot.version)
        messages[topics.config(person.id)] = _json(config)
        messages[topics.state("person", person.id)] = _json(
            {"heard": person.heard, "device": person.device_name, "area": person.area}
        )
    messages[topics.availability] = ONLINE  # the last: everything else is there then
    return messages


def words_message(heard: str, said: str, person: str) -> bytes:
    """Returns the message with the last words, which is never retained."""
    return _json({"heard": heard, "said": said, "person": person})


def error_message(topic: str, code: str, message: str) -> bytes:
    """Returns the message about a command that was refused or failed."""
    return _json({"topic": topic, "code": code, "message": message})


def _server_messages(
    snapshot: Snapshot, topics: Topics, *, has_words: bool
) -> Iterator[tuple[str, bytes]]:
    yield topics.config(), _json(server_config(topics, snapshot.version, has_words=has_words))
    state = {"sessions": snapshot.sessions, "latency_ms": snapshot.latency_ms}
    yield topics.server_state, _json(state)


def _device_messages(
    shown: DeviceState, topics: Topics, version: str, *, has_words: bool
) -> Iterator[tuple[str, bytes]]:
    device = shown.device
    config = device_config(device, topics, version, has_words=has_words)
    yield topics.config(device.id), _json(config)
    state = {
        "connected": shown.activity is not None,
        "activity": shown.activity or "away",
        "latency_ms": shown.latency_ms,
        "volume": device.profile.volume,
        "area": device.area,
        "waiting": shown.waiting,
    }
    yield topics.state("device", device.id), _json(state)


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)
