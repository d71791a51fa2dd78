"""Messages of Home Assistant's MQTT discovery: one per device, with all of its entities.

Home Assistant 2024.11 and newer read this form. A message with an empty payload removes the device.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devices.api.door import KINDS_WITHOUT_SPEECH
from devices.fleet.directory import Device, DeviceKind
from devices.fleet.presence import DeviceActivity
from devices.mqtt.topics import Topics

MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")

ACTIVITIES: tuple[DeviceActivity | str, ...] = ("away", "idle", "listening", "thinking", "speaking")
"Values of the activity. `away`: the device is not connected."

MAX_STATE_CHARS = 255
"Limit of a state in Home Assistant, which drops a longer one. The topic has all of the text."

Config = Mapping[str, Any]
"A discovery message before it is encoded."


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Commands that devices of a kind carry out, besides announcements."""

    stops: bool = False
    has_volume: bool = False
    is_startable: bool = False
    "Some devices of the kind can listen after an announcement."


ABILITIES: Mapping[DeviceKind, Abilities] = {
    "esphome": Abilities(stops=True, has_volume=True, is_startable=True),
    "xiaozhi": Abilities(stops=True, has_volume=True, is_startable=True),
    "willow": Abilities(has_volume=True),
}
"By kind of device; a kind that is missing can be told nothing."


def server_config(topics: Topics, version: str, *, has_words: bool) -> Config:
    """Returns the message that shows the server."""
    entities = {
        "sessions": _sensor(
            "Sessions", topics.server_state, "sessions", state_class="measurement", icon="mdi:phone"
        ),
        "latency": _latency(topics.server_state),
        "announce": _notify("Announce everywhere", topics.announce),
    }
    if has_words:
        entities |= _words(topics.words())
    block = {"name": "Earshot", "manufacturer": "Earshot", "sw_version": version}
    return _config(topics, "", block, entities, version)


def device_config(device: Device, topics: Topics, version: str, *, has_words: bool) -> Config:
    """Returns the message that shows a device."""
    able = ABILITIES.get(device.kind, Abilities())
    state = topics.state("device", device.id)
    entities: dict[str, dict[str, Any]] = {
        "connected": {
            "platform": "binary_sensor",
            "name": "Connected",
            "device_class": "connectivity",
            "entity_category": "diagnostic",
            "state_topic": state,
            "value_template": "{{ 'ON' if value_json.connected else 'OFF' }}",
        },
        "activity": _sensor(
            "Activity", state, "activity", device_class="enum", options=list(ACTIVITIES)
        ),
        "latency": _latency(state),
    }
    if device.kind not in KINDS_WITHOUT_SPEECH:
        entities["announce"] = _notify("Announce", topics.command(device.id, "announce"))
        entities["waiting"] = _sensor(
            "Waiting announcements", state, "waiting", entity_category="diagnostic"
        )
    if able.is_startable:
        topic = topics.command(device.id, "start_conversation")
        entities["start_conversation"] = _notify("Start conversation", topic)
    if able.stops:
        entities["stop"] = {
            "platform": "button",
            "name": "Stop",
            "command_topic": topics.command(device.id, "stop"),
        }
    if able.has_volume:
        entities["volume"] = {
            "platform": "number",
            "name": "Volume",
            "command_topic": topics.command(device.id, "volume"),
            "state_topic": state,
            # Without a profile's volume the buttons of the device set it, and nobody knows it.
            "value_template": _template("volume"),
            "min": 0,
            "max": 100,
            "step": 1,
            "unit_of_measurement": "%",
        }
    if has_words:
        entities |= _words(topics.words(device.id))
    block: dict[str, Any] = {
        "name": device.name,
        "manufacturer": device.kind,
        "model": device.board or device.kind,
    }
    if device.firmware:
        block["sw_version"] = device.firmware
    if device.area:
        block["suggested_area"] = device.area
    if MAC.fullmatch(device.hardware_id):
        # Home Assistant then shows one device where another integration knows it, too.
        block["connections"] = [["mac", device.hardware_id]]
    return _config(topics, device.id, block, entities, version)


def person_config(person_id: str, name: str, topics: Topics, version: str) -> Config:
    """Returns the message that shows a person."""
    state = topics.state("person", person_id)
    entities = {
        "heard": _sensor("Last heard", state, "heard", device_class="timestamp"),
        "device": _sensor("Last heard by", state, "device", icon="mdi:speaker"),
    }
    block = {"name": name, "manufacturer": "Earshot", "model": "Person"}
    return _config(topics, person_id, block, entities, version)


def _config(
    topics: Topics,
    owner_id: str,
    block: dict[str, Any],
    entities: Mapping[str, dict[str, Any]],
    version: str,
) -> Config:
    unique_id = topics.unique_id(owner_id)
    via = {"via_device": topics.unique_id()} if owner_id else {}
    return {
        "device": {"identifiers": [unique_id], **block, **via},
        "origin": {"name": "Earshot", "sw_version": version},
        "availability_topic": topics.availability,
        "components": {
            name: {"unique_id": f"{unique_id}_{name}", **entity}
            for name, entity in entities.items()
        },
    }


def _sensor(name: str, state_topic: str, key: str, **more: object) -> dict[str, Any]:
    """`key`: field of the state that it shows."""
    return {
        "platform": "sensor",
        "name": name,
        "state_topic": state_topic,
        "value_template": _template(key),
        **more,
    }


def _template(key: str) -> str:
    """Returns the template for a field of the state. Home Assistant shows `None` as unknown."""
    return f"{{{{ value_json.{key} if value_json.{key} is not none else 'None' }}}}"


def _latency(state_topic: str) -> dict[str, Any]:
    return _sensor(
        "Response latency",
        state_topic,
        "latency_ms",
        device_class="duration",
        unit_of_measurement="ms",
        state_class="measurement",
        entity_category="diagnostic",
    )


def _notify(name: str, command_topic: str) -> dict[str, Any]:
    return {"platform": "notify", "name": name, "command_topic": command_topic}


def _words(topic: str) -> dict[str, dict[str, Any]]:
    return {
        "heard": _last_words("Last words heard", topic, "heard"),
        "said": _last_words("Last words said", topic, "said"),
    }


def _last_words(name: str, topic: str, key: str) -> dict[str, Any]:
    return {
        "platform": "sensor",
        "name": name,
        "state_topic": topic,
        "value_template": f"{{{{ value_json.{key}[:{MAX_STATE_CHARS}] }}}}",
    }
