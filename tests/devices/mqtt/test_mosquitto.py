"""The MQTT client with a real mosquitto, watched by another client."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.tasks import Backoff
from devices.mqtt.client import BrokerConnection
from devices.mqtt.message_queue import OutgoingMessage
from devices.mqtt.settings import MqttSettings
from server.config.sections.mqtt import MqttConfig
from tests.devices.api.fakes import device
from tests.devices.mqtt.fake_broker import Scene, StartableLive, StoppableLive
from tests.devices.mqtt.mosquitto import (
    PASSWORD,
    USER,
    Mosquitto,
    broker_connect,
    mosquitto,
    running,
)
from tests.ports import reserved_port

pytestmark = pytest.mark.real

CONFIG = "homeassistant/device/earshot_home_dev_1/config"
STATE = "earshot/home/device/dev_1/state"
ERRORS = "earshot/home/error"
AVAILABILITY = "earshot/home/availability"
WAIT_S = 30


class Watcher:
    """Another client of the broker: knows what the broker holds, and sends commands."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.held: dict[str, bytes] = {}
        self.passed: list[tuple[str, bytes]] = []
        self._news = asyncio.Condition()

    async def run(self) -> None:
        async for message in self.client.messages:
            async with self._news:
                self.held[str(message.topic)] = message.payload
                self.passed.append((str(message.topic), message.payload))
                self._news.notify_all()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S), self._news:
            await self._news.wait_for(lambda: bool(condition()))

    def activity(self) -> str:
        return str(msgspec.json.decode(self.held.get(STATE) or b"{}").get("activity"))


@asynccontextmanager
async def watching(settings: MqttSettings) -> AsyncIterator[Watcher]:
    import aiomqtt

    client = aiomqtt.Client(
        settings.host,
        settings.port,
        username=settings.username or None,
        password=settings.password or None,
        tls_context=settings.tls,
    )
    async with client, asyncio.TaskGroup() as tasks:
        watcher = Watcher(client)
        await client.subscribe("#")
        task = tasks.create_task(watcher.run())
        yield watcher
        task.cancel()


def real_scene(settings: MqttSettings) -> Scene:
    return Scene(settings, broker_connect())


def settings_of(broker: Mosquitto) -> MqttSettings:
    """Returns what a user would configure for this broker."""
    if broker.certificate is None:
        return MqttConfig(host="127.0.0.1", port=broker.port).as_settings()
    return MqttConfig(
        host="127.0.0.1",
        port=broker.port,
        username=USER,
        password=PASSWORD,
        tls=True,
        ca_file=str(broker.certificate),
    ).as_settings()


@pytest.mark.parametrize("is_secured", [False, True])
def test_devices_commands_and_removal(tmp_path: Path, *, is_secured: bool) -> None:
    async def main(broker: Mosquitto) -> None:
        settings = settings_of(broker)
        scene, live = real_scene(settings), StoppableLive()
        listener = StartableLive()
        async with watching(settings) as watcher:
            async with running(scene):
                await watcher.until(lambda: watcher.activity() == "away")
                assert msgspec.json.decode(watcher.held[CONFIG])["device"]["name"] == "Board"
                with scene.presence.connected("dev_1", live):
                    await watcher.until(lambda: watcher.activity() == "idle")
                    command = "earshot/home/device/dev_1"
                    await watcher.client.publish(f"{command}/announce", "dinner", qos=1)
                    await watcher.client.publish(f"{command}/volume", "30", qos=1)
                    await watcher.client.publish(f"{command}/volume", "loud", qos=1)
                    await watcher.until(lambda: ERRORS in watcher.held)
                    assert b"invalid_value" in watcher.held[ERRORS]
                    assert live.heard == ["dinner"]
                    assert live.told == ["volume 30"]
                with scene.presence.connected("dev_1", listener):
                    question = '{"text": "Jetzt?", "voice": "anna", "language": "de"}'
                    await watcher.client.publish(f"{command}/start_conversation", question, qos=1)
                    await watcher.client.publish(f"{command}/stop", "", qos=1)
                    await watcher.until(lambda: b"not_supported" in watcher.held[ERRORS])
                    (notice,) = listener.notices
                    assert (notice.starts_conversation, notice.voice) == (True, "anna")
                watcher.passed.clear()
                await watcher.client.publish("homeassistant/status", "online", qos=1)
                await watcher.until(lambda: CONFIG in dict(watcher.passed))
                scene.registry.set(replace(device("dev_2"), area="Hall"))
                await watcher.until(lambda: watcher.held[CONFIG] == b"")
                await watcher.until(lambda: watcher.held[STATE] == b"")
            await watcher.until(lambda: watcher.held[AVAILABILITY] == b"offline")

    with reserved_port() as port, mosquitto(tmp_path, port, is_secured=is_secured) as broker:
        asyncio.run(main(broker))


def test_a_killed_broker_gets_everything_again_when_it_is_back(tmp_path: Path) -> None:
    async def main(broker: Mosquitto) -> None:
        settings = settings_of(broker)
        scene = real_scene(settings)
        async with running(scene):
            async with watching(settings) as watcher:
                await watcher.until(lambda: watcher.held.get(AVAILABILITY) == b"online")
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            async with watching(settings) as watcher:
                await watcher.until(lambda: watcher.held.get(AVAILABILITY) == b"online")
                assert {CONFIG, STATE} <= set(watcher.held)

    with reserved_port() as port, mosquitto(tmp_path, port) as broker:
        asyncio.run(main(broker))


def test_a_line_that_is_cut_makes_the_broker_send_the_will(tmp_path: Path) -> None:
    async def main(broker: Mosquitto) -> None:
        settings, lines = settings_of(broker), list[socket.socket]()

        @asynccontextmanager
        async def connected(
            settings: MqttSettings, will: OutgoingMessage
        ) -> AsyncIterator[BrokerConnection]:
            async with broker_connect()(settings, will) as connection:
                lines.append(connection._client._client.socket())
                yield connection

        async with running(Scene(settings, connected)), watching(settings) as watcher:
            await watcher.until(lambda: watcher.held.get(AVAILABILITY) == b"online")
            lines[0].shutdown(socket.SHUT_RDWR)
            await watcher.until(lambda: (AVAILABILITY, b"offline") in watcher.passed)
            await watcher.until(lambda: watcher.held.get(AVAILABILITY) == b"online")

    with reserved_port() as port, mosquitto(tmp_path, port) as broker:
        asyncio.run(main(broker))


def test_what_the_broker_refuses_is_named_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(settings: MqttSettings) -> str:
        """Returns the line that is logged."""
        caplog.clear()
        scene, second = Scene(settings, broker_connect()), asyncio.Event()

        class Twice(Backoff):
            def fail(self, lasted_s: float = 0.0) -> float:
                if self.failures:
                    second.set()
                return 0.01 * bool(super().fail(lasted_s))

        scene.client._backoff = Twice([1.0])
        async with running(scene), asyncio.timeout(WAIT_S):
            await second.wait()
        (line,) = caplog.records
        return line.message

    with (
        reserved_port() as port,
        mosquitto(tmp_path, port, is_secured=True) as broker,
        caplog.at_level(logging.WARNING),
    ):
        good = settings_of(broker)
        start = f"! mqtt: no connection to 127.0.0.1:{port}: "
        wrong_password = asyncio.run(main(replace(good, password="wrong")))
        assert wrong_password.startswith(f"{start}the broker refuses us: ")
        assert "Not authorized" in wrong_password
        assert "check mqtt.username, mqtt.password" in wrong_password
        assert "wrong" not in wrong_password
        unknown = ssl.create_default_context()
        wrong_certificate = asyncio.run(main(replace(good, tls=unknown)))
        assert wrong_certificate.startswith(start)
        assert "certificate verify failed" in wrong_certificate
        broker.kill()
        nobody = asyncio.run(main(good))
        assert "Connection refused" in nobody
