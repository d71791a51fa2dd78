"""Discovery messages and states, as Home Assistant reads them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from devices.fleet.directory import DeviceKind, DeviceProfile
from devices.mqtt.state import DeviceState, PersonState, Snapshot, retained_messages
from devices.mqtt.topics import Topics
from tests.devices.api.fakes import device

TOPICS = Topics("earshot", "home", "homeassistant")
KITCHEN = replace(
    device("dev_1"),
    name="Kitchen board",
    area="Kitchen",
    hardware_id="aa:bb:cc:dd:ee:ff",
    firmware="1.2",
    profile=DeviceProfile(volume=60),
)
BEN = PersonState(
    id="spk_1",
    name="Ben",
    heard=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    device_name="Kitchen board",
    area="Kitchen",
)


def messages(snapshot: Snapshot, *, has_words: bool = False) -> dict[str, Any]:
    """Returns the decoded messages by topic, without the availability, which is no JSON."""
    found = dict(retained_messages(snapshot, TOPICS, has_words=has_words))
    assert found.pop("earshot/home/availability") == b"online"
    return {topic: msgspec.json.decode(payload) for topic, payload in found.items()}


def snapshot(*devices: DeviceState, people: tuple[PersonState, ...] = ()) -> Snapshot:
    return Snapshot(version="1.0", sessions=2, latency_ms=412.5, devices=devices, people=people)


def test_a_device_is_shown_with_its_entities() -> None:
    shown = messages(snapshot(DeviceState(device=KITCHEN, activity="listening", latency_ms=300.0)))
    config = shown["homeassistant/device/earshot_home_dev_1/config"]
    assert config["device"] == {
        "identifiers": ["earshot_home_dev_1"],
        "name": "Kitchen board",
        "manufacturer": "xiaozhi",
        "model": "xiaozhi",
        "sw_version": "1.2",
        "suggested_area": "Kitchen",
        "connections": [["mac", "aa:bb:cc:dd:ee:ff"]],
        "via_device": "earshot_home",
    }
    assert config["availability_topic"] == "earshot/home/availability"
    assert {name: one["platform"] for name, one in config["components"].items()} == {
        "connected": "binary_sensor",
        "activity": "sensor",
        "latency": "sensor",
        "announce": "notify",
        "waiting": "sensor",
        "start_conversation": "notify",
        "stop": "button",
        "volume": "number",
    }
    assert shown["earshot/home/device/dev_1/state"] == {
        "connected": True,
        "activity": "listening",
        "latency_ms": 300.0,
        "volume": 60,
        "area": "Kitchen",
        "waiting": 0,
    }


def test_all_unique_ids_differ() -> None:
    other = replace(device("dev_2"), kind="wyoming")
    shown = messages(
        snapshot(DeviceState(device=KITCHEN), DeviceState(device=other), people=(BEN,)),
        has_words=True,
    )
    configs = [message for topic, message in shown.items() if topic.endswith("/config")]
    ids = [one["unique_id"] for config in configs for one in config["components"].values()]
    assert len(ids) == len(set(ids)) > 20
    assert len({config["device"]["identifiers"][0] for config in configs}) == 4


@pytest.mark.parametrize(
    ("kind", "entities"),
    [
        ("xiaozhi", {"announce", "waiting", "start_conversation", "stop", "volume"}),
        ("esphome", {"announce", "waiting", "start_conversation", "stop", "volume"}),
        ("willow", {"announce", "waiting", "volume"}),
        ("wyoming", set()),
    ],
)
def test_a_device_has_only_what_its_kind_can(kind: DeviceKind, entities: set[str]) -> None:
    shown = messages(snapshot(DeviceState(device=replace(KITCHEN, kind=kind))))
    config = shown["homeassistant/device/earshot_home_dev_1/config"]
    assert set(config["components"]) == entities | {"connected", "activity", "latency"}


def test_a_device_that_is_away_is_shown_as_away() -> None:
    state = messages(snapshot(DeviceState(device=KITCHEN, waiting=1)))
    shown = state["earshot/home/device/dev_1/state"]
    assert (shown["connected"], shown["activity"], shown["waiting"]) == (False, "away", 1)


def test_the_server_shows_its_sessions() -> None:
    shown = messages(snapshot())
    assert shown["earshot/home/state"] == {"sessions": 2, "latency_ms": 412.5}
    assert set(shown["homeassistant/device/earshot_home/config"]["components"]) == {
        "sessions",
        "latency",
        "announce",
    }


def test_words_have_entities_only_where_they_are_published() -> None:
    quiet = messages(snapshot(DeviceState(device=KITCHEN)))
    assert "words" not in str(quiet)
    loud = messages(snapshot(DeviceState(device=KITCHEN)), has_words=True)
    heard = loud["homeassistant/device/earshot_home_dev_1/config"]["components"]["heard"]
    assert heard["state_topic"] == "earshot/home/device/dev_1/words"
    assert "/words" not in "".join(loud), "words are never retained"


def test_a_person_is_shown_with_the_time_and_the_device() -> None:
    shown = messages(snapshot(people=(BEN,)))
    assert shown["earshot/home/person/spk_1/state"] == {
        "heard": "2026-01-02T03:04:00Z",
        "device": "Kitchen board",
        "area": "Kitchen",
    }
    config = shown["homeassistant/device/earshot_home_spk_1/config"]
    assert config["device"]["name"] == "Ben"
    assert config["components"]["heard"]["device_class"] == "timestamp"
