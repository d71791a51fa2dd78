"""A real Home Assistant shows our devices by its MQTT integration, and sends announcements."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from devices.mqtt.settings import MqttSettings
from tests.devices.mqtt.fake_broker import SETTINGS, Scene, StoppableLive
from tests.devices.mqtt.mosquitto import broker_connect, mosquitto, running
from tests.homeassistant.harness import HomeAssistant, home_assistant, signed_in
from tests.ports import reserved_port

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("home_assistant")]

SHOWN_S = 60
SHOWN = {
    "binary_sensor.board_connected": "off",
    "sensor.board_activity": "away",
    "sensor.board_response_latency": "unknown",
    "sensor.board_waiting_announcements": "0",
    "button.board_stop": "unknown",
    "number.board_volume": "50",
    "notify.board_announce": "unknown",
    "sensor.earshot_sessions": "0",
    "notify.earshot_announce_everywhere": "unknown",
    "sensor.ben_last_heard": "unknown",
    "sensor.board_last_words_heard": "unknown",
}
"Entity -> its first state."


def test_home_assistant_shows_our_devices_and_announces_on_them(tmp_path: Path) -> None:
    async def main(url: str, settings: MqttSettings) -> None:
        scene, live = Scene(settings, broker_connect()), StoppableLive()
        async with signed_in(url) as home, running(scene):
            added = await home.add("mqtt", broker=settings.host, port=settings.port)
            assert added["type"] == "create_entry", added
            await shown(home, SHOWN)
            with scene.presence.connected("dev_1", live):
                await shown(home, {"sensor.board_activity": "idle"})
                message = {"entity_id": "notify.board_announce", "message": "dinner"}
                await home.post("/api/services/notify/send_message", message)
                await home.post("/api/services/button/press", {"entity_id": "button.board_stop"})
                volume = {"entity_id": "number.board_volume", "value": 30}
                await home.post("/api/services/number/set_value", volume)
                await shown(home, {"number.board_volume": "30"})
            assert live.heard == ["dinner"]
            assert live.told == ["stop", "volume 30"]
            scene.registry.set()
            await shown(home, {"sensor.board_activity": None, "sensor.earshot_sessions": "0"})

    with (
        reserved_port() as port,
        mosquitto(tmp_path, port),
        home_assistant(tmp_path) as url,
    ):
        allowed = replace(SETTINGS, publishes_words=True, publishes_people=True)
        asyncio.run(main(url, replace(allowed, host="127.0.0.1", port=port)))


async def shown(home: HomeAssistant, wanted: Mapping[str, str | None]) -> None:
    """Waits until the entities have these states; None: until there is no such entity."""
    states: dict[str, str] = {}
    try:
        async with asyncio.timeout(SHOWN_S):
            while any(states.get(name) != state for name, state in wanted.items()) or not states:
                await asyncio.sleep(0.2)  # a process: its API is asked
                states = {one["entity_id"]: one["state"] for one in await home.get("/api/states")}
    except TimeoutError:
        found = {name: states.get(name) for name in wanted}
        raise AssertionError(f"shown: {found}; there are {sorted(states)}") from None
