"""The MQTT client with a broker in memory: what it publishes, commands, lost connections."""

import asyncio
import logging
from dataclasses import replace

import pytest

from core.conversation.events import SpeakerRecognised, TranscriptionCompleted
from core.conversation.speakers import SpeakerMatch
from core.errors import StorageError
from devices.mqtt.client import REFRESH_S, BrokerRefused
from devices.mqtt.commands import MAX_COMMANDS_PER_MINUTE, MAX_PAYLOAD_BYTES
from tests.devices.api.fakes import FakeLive, device
from tests.devices.mqtt.fake_broker import (
    KITCHEN,
    SETTINGS,
    Scene,
    StartableLive,
    StoppableLive,
)
from tests.loop import run_virtual

CONFIG = "homeassistant/device/earshot_home_dev_1/config"
STATE = "earshot/home/device/dev_1/state"
COMMAND = "earshot/home/device/dev_1"


def test_a_device_is_published_and_followed() -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.running() as broker:
            assert broker.retained["earshot/home/availability"] == b"online"
            assert CONFIG in broker.retained
            assert broker.state(STATE)["activity"] == "away"
            live = FakeLive(timing={"playout_start": 420.0})
            with scene.presence.connected("dev_1", live):
                live.activity = "speaking"
                scene.presence.note_change()
                await asyncio.sleep(1)
                assert broker.state(STATE)["activity"] == "speaking"
                assert broker.state(STATE)["latency_ms"] == 420.0
            await asyncio.sleep(1)
            assert broker.state(STATE)["connected"] is False
        assert broker.retained["earshot/home/availability"] == b"offline"

    run_virtual(main())


def test_a_deleted_device_is_removed_also_if_it_went_while_we_were_away() -> None:
    async def main() -> None:
        scene = Scene()
        old_state, old_config = STATE.replace("dev_1", "dev_0"), CONFIG.replace("dev_1", "dev_0")
        scene.broker.retained |= {old_state: b"{}", old_config: b"{}"}
        scene.broker.retained["homeassistant/device/other_1/config"] = b"{}"
        async with scene.running() as broker:
            assert old_state not in broker.retained
            assert old_config not in broker.retained
            scene.registry.set()
            await asyncio.sleep(1)
            assert STATE not in broker.retained
            assert CONFIG not in broker.retained
            assert "homeassistant/device/other_1/config" in broker.retained

    run_virtual(main())


def test_only_approved_devices_are_shown() -> None:
    async def main() -> None:
        scene = Scene()
        scene.registry.set(
            replace(device("dev_1"), standing="new"), replace(device("dev_2"), standing="blocked")
        )
        async with scene.running() as broker:
            assert not any("dev_" in topic for topic in broker.retained)
            broker.send(f"{COMMAND}/announce", b"hello")
            await asyncio.sleep(1)
            assert broker.errors() == ["device_not_found"]

    run_virtual(main())


def test_home_assistants_birth_asks_for_everything_again() -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.running() as broker:
            broker.published.clear()
            broker.send("homeassistant/status", b"offline")
            await asyncio.sleep(1)
            assert broker.published == []
            broker.send("homeassistant/status", b"online")
            await asyncio.sleep(1)
            assert {CONFIG, STATE} <= set(broker.published)

    run_virtual(main())


def test_a_lost_broker_is_connected_again_and_gets_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.running() as broker:
            broker.is_down = BrokerRefused("the broker refuses us: Not authorized")
            broker.lose()
            await asyncio.sleep(200)
            assert broker.retained["earshot/home/availability"] == b"offline"
            broker.is_down = None
            broker.retained.clear()
            await asyncio.sleep(70)
            assert broker.connections == 2
            assert {CONFIG, STATE} <= set(broker.retained)

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    lines = [line.message for line in caplog.records]
    start, advice = "! mqtt: no connection to broker:1883: ", "(check mqtt.username, mqtt.password"
    assert lines[0] == f"{start}lost"
    assert lines[1].startswith(f"{start}the broker refuses us: Not authorized {advice}")
    assert len(lines) == 2, "one line for all attempts"


def test_announcements_come_by_topic() -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive()
        async with scene.running() as broker:
            with scene.presence.connected("dev_1", live):
                broker.send(f"{COMMAND}/announce", b"one")
                broker.send(f"{COMMAND}/announce", b'{"text": "two"}')
                broker.send("earshot/home/announce", b"three")
                broker.send("earshot/home/announce", b'{"text": "four", "area": "kitchen"}')
                await asyncio.sleep(1)
            assert live.heard == ["one", "two", "three", "four"]
            broker.send(f"{COMMAND}/announce", b"later")
            await asyncio.sleep(1)
            assert broker.state(STATE)["waiting"] == 1
        assert scene.metrics.counts["earshot_mqtt_commands:done"] == 5

    run_virtual(main())


def test_a_retained_command_is_not_carried_out_again() -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive()
        async with scene.running() as broker:
            with scene.presence.connected("dev_1", live):
                broker.send(f"{COMMAND}/announce", b"old", is_retained=True)
                await asyncio.sleep(1)
        assert live.heard == []

    run_virtual(main())


def test_stop_and_volume_reach_the_device() -> None:
    async def main() -> None:
        scene, live = Scene(), StoppableLive()
        async with scene.running() as broker:
            with scene.presence.connected("dev_1", live):
                broker.send(f"{COMMAND}/stop", b"PRESS")
                broker.send(f"{COMMAND}/volume", b"30")
                await asyncio.sleep(1)
            assert live.told == ["stop", "volume 30"]
            assert broker.state(STATE)["volume"] == 30

    run_virtual(main())


@pytest.mark.parametrize(
    ("topic", "payload", "code"),
    [
        (f"{COMMAND}/announce", b"", "invalid_value"),
        (f"{COMMAND}/announce", b"{", "invalid_json"),
        (f"{COMMAND}/announce", b"x" * (MAX_PAYLOAD_BYTES + 1), "too_large"),
        (f"{COMMAND}/volume", b"loud", "invalid_value"),
        (f"{COMMAND}/stop", b"", "device_away"),
        ("earshot/home/device/dev_9/stop", b"", "device_not_found"),
        ("earshot/home/announce", b"hello", "device_away"),
        ("earshot/home/announce", b'{"text": "a", "voice": "bob"}', "voice_not_found"),
        (f"{COMMAND}/announce", b'{"text": "a", "language": "fr"}', "unsupported_language"),
        (f"{COMMAND}/start_conversation", b'{"text": "a", "voice": "b"}', "voice_not_found"),
        ("earshot/home/announce", b'{"text": "a", "area": "attic"}', "area_not_found"),
    ],
)
def test_a_bad_command_gets_an_error_and_the_next_one_works(
    topic: str, payload: bytes, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive()
        async with scene.running() as broker:
            broker.send(topic, payload)
            await asyncio.sleep(1)
            assert broker.errors() == [code]
            with scene.presence.connected("dev_1", live):
                broker.send(f"{COMMAND}/announce", b"hello")
                await asyncio.sleep(1)
            assert live.heard == ["hello"]

    run_virtual(main())
    (line,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert topic in line
    assert code in line


def test_a_conversation_is_started_by_topic() -> None:
    async def main() -> None:
        scene, live = Scene(), StartableLive()
        async with scene.running() as broker:
            with scene.presence.connected("dev_1", live):
                asked = b'{"text": "Und jetzt?", "voice": "anna", "language": "de"}'
                broker.send(f"{COMMAND}/start_conversation", asked)
                await asyncio.sleep(1)
                (notice,) = live.notices
                assert notice.starts_conversation
                assert (notice.voice, notice.language) == ("anna", "de")
                assert broker.errors() == []
                live.can_be_started = False
                broker.send(f"{COMMAND}/start_conversation", b"And now?")
                await asyncio.sleep(1)
                assert broker.errors() == ["not_supported"]
            assert live.heard == ["Und jetzt?"]
            with scene.presence.connected("dev_1", FakeLive()):
                broker.send(f"{COMMAND}/start_conversation", b"And now?")
                await asyncio.sleep(1)
            assert broker.errors() == ["not_supported", "not_supported"]
            broker.send(f"{COMMAND}/start_conversation", b"later")
            await asyncio.sleep(1)
            assert broker.state(STATE)["waiting"] == 1

    run_virtual(main())


def test_a_kind_that_cannot_listen_is_refused_also_while_it_is_away() -> None:
    async def main() -> None:
        scene = Scene()
        scene.registry.set(replace(device("dev_1"), kind="willow"))
        async with scene.running() as broker:
            broker.send(f"{COMMAND}/start_conversation", b"And now?")
            await asyncio.sleep(1)
            assert broker.errors() == ["not_supported"]
            assert broker.state(STATE)["waiting"] == 0

    run_virtual(main())


def test_a_device_that_cannot_be_stopped_says_so() -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.running() as broker:
            with scene.presence.connected("dev_1", FakeLive()):
                broker.send(f"{COMMAND}/stop")
                await asyncio.sleep(1)
            assert broker.errors() == ["not_supported"]

    run_virtual(main())


def test_a_flood_of_commands_is_cut_off_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        scene, live = Scene(), StoppableLive()
        async with scene.running() as broker:
            with scene.presence.connected("dev_1", live):
                for _ in range(2 * MAX_COMMANDS_PER_MINUTE):
                    broker.send(f"{COMMAND}/stop")
                await asyncio.sleep(0.5)
                assert 0 < len(live.told) <= MAX_COMMANDS_PER_MINUTE
                assert broker.errors() == ["too_many_commands"]
                await asyncio.sleep(60)
                live.told.clear()
                broker.send(f"{COMMAND}/stop")
                await asyncio.sleep(1)
                assert live.told == ["stop"]

    run_virtual(main())
    assert len([line for line in caplog.records if line.levelno == logging.WARNING]) == 1


def test_a_database_that_fails_costs_no_device_its_entities() -> None:
    async def main() -> None:
        scene = Scene()
        scene.broker.retained[STATE] = b"{}"
        scene.registry.fails = StorageError("locked")
        async with scene.running() as broker:
            assert STATE in broker.retained
            scene.registry.fails = None
            await asyncio.sleep(10)
            assert broker.state(STATE)["activity"] == "away"

    run_virtual(main())


def test_people_and_words_are_published_where_it_is_allowed() -> None:
    async def main() -> None:
        scene = Scene(replace(SETTINGS, publishes_words=True, publishes_people=True))
        person = "earshot/home/person/spk_1/state"
        async with scene.running() as broker:
            assert broker.state(person) == {"heard": None, "device": "", "area": ""}
            match = SpeakerMatch("spk_1", "Ben", 0.9)
            scene.last_turns.take(KITCHEN, SpeakerRecognised("item_1", match))
            heard = TranscriptionCompleted("item_1", "lights on", audio_s=1, language="en")
            scene.last_turns.take(KITCHEN, heard)
            await asyncio.sleep(1)
            assert broker.state(person)["device"] == "Board"
            assert broker.passed == [
                (f"{COMMAND}/words", b'{"heard":"lights on","said":"","person":"Ben"}')
            ]
            scene.people.known.clear()
            await asyncio.sleep(REFRESH_S + 1)
            assert person not in broker.retained
            assert "homeassistant/device/earshot_home_spk_1/config" not in broker.retained

    run_virtual(main())


def test_nothing_private_is_published_by_default() -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.running() as broker:
            match = SpeakerMatch("spk_1", "Ben", 0.9)
            scene.last_turns.take(KITCHEN, SpeakerRecognised("item_1", match))
            heard = TranscriptionCompleted("item_1", "lights on", audio_s=1, language="en")
            scene.last_turns.take(KITCHEN, heard)
            await asyncio.sleep(1)
            everything = str(broker.retained) + str(broker.passed)
            assert "Ben" not in everything
            assert "lights" not in everything

    run_virtual(main())
