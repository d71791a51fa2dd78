"""A broker in memory, and a server's parts around an MQTT client. All in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from core.errors import StorageError
from core.ports import DeviceLocation
from devices.fleet.directory import Device, DeviceProfile
from devices.fleet.presence import Presence
from devices.mqtt.client import BrokerError, Connect, MqttClient, MqttSources, ReceivedMessage
from devices.mqtt.last_turns import LastTurns
from devices.mqtt.message_queue import OutgoingMessage
from devices.mqtt.settings import MqttSettings
from devices.notices.announcements import Announcements
from devices.registry.registry import DeviceRegistry
from devices.registry.speakers import EnrolledSpeakers
from pipeline.session.sessions import Sessions
from tests.devices.api.fakes import FakeLive, FakeRooms, FakeTalks, device, german_notices
from tests.pipeline.fakes import Counts, LoopClock

KITCHEN = DeviceLocation(area="Kitchen", device_id="dev_1")
SETTINGS = MqttSettings(host="broker", port=1883)


@dataclass
class FakeBroker:
    """Holds retained messages. `is_down`: refuses connections; `lose` ends the present one."""

    is_down: BrokerError | None = None
    retained: dict[str, bytes] = field(default_factory=dict)
    passed: list[tuple[str, bytes]] = field(default_factory=list)
    "Messages without retention."
    published: list[str] = field(default_factory=list)
    "Topics in the order of their messages."
    connections: int = 0
    inbox: asyncio.Queue[ReceivedMessage | None] = field(default_factory=asyncio.Queue)

    @asynccontextmanager
    async def connect(self, _: MqttSettings, will: OutgoingMessage) -> AsyncIterator["FakeBroker"]:
        if self.is_down is not None:
            raise self.is_down
        self.connections += 1
        self.inbox = asyncio.Queue()
        try:
            yield self
        except BaseExceptionGroup:  # the connection was lost
            self.retained[will.topic] = will.payload
            raise

    async def publish(self, message: OutgoingMessage) -> None:
        self.published.append(message.topic)
        if not message.is_retained:
            self.passed.append((message.topic, message.payload))
        elif message.payload:
            self.retained[message.topic] = message.payload
        else:
            self.retained.pop(message.topic, None)

    async def subscribe(self, topics: Sequence[str], *, with_retained: bool) -> None:
        for wanted in topics if with_retained else ():
            start, end = wanted.split("+")
            for topic, payload in tuple(self.retained.items()):
                if topic.startswith(start) and topic.endswith(end):
                    self.inbox.put_nowait(ReceivedMessage(topic, payload, is_retained=True))

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        while (message := await self.inbox.get()) is not None:
            yield message
        raise BrokerError("lost")

    def send(self, topic: str, payload: bytes = b"", *, is_retained: bool = False) -> None:
        self.inbox.put_nowait(ReceivedMessage(topic, payload, is_retained))

    def lose(self) -> None:
        self.inbox.put_nowait(None)

    def state(self, topic: str) -> Any:
        """Returns what is retained, decoded; None: nothing."""
        payload = self.retained.get(topic)
        return None if payload is None else msgspec.json.decode(payload)

    def errors(self) -> list[str]:
        """Returns the codes of the errors that were published."""
        return [
            msgspec.json.decode(payload)["code"]
            for topic, payload in self.passed
            if topic == "earshot/home/error"
        ]


@dataclass
class FakeRegistry(FakeRooms):
    """A registry of devices in memory."""

    known: list[Device] = field(default_factory=list)
    next_change: asyncio.Event = field(default_factory=asyncio.Event)
    fails: StorageError | None = None

    async def all_devices(self) -> Sequence[Device]:
        if self.fails is not None:
            raise self.fails
        return tuple(self.known)

    async def in_area(self, area: str) -> Sequence[Device]:
        return [one for one in self.known if one.area.casefold() == area.casefold()]

    async def edit(self, device_id: str, *, profile: Any) -> Device:
        self.set(
            *(
                replace(one, profile=profile(one.profile)) if one.id == device_id else one
                for one in self.known
            )
        )
        return self.known[0]

    def set(self, *devices: Device) -> None:
        self.known = list(devices)
        self.next_change.set()
        self.next_change = asyncio.Event()

    def changed(self) -> asyncio.Event:
        return self.next_change


@dataclass
class FakeSessions:
    count: int = 0
    next_change: asyncio.Event = field(default_factory=asyncio.Event)

    def changed(self) -> asyncio.Event:
        return self.next_change


@dataclass
class Person:
    id: str
    name: str


@dataclass
class FakePeople:
    known: list[Person] = field(default_factory=list)

    def list_all(self) -> Sequence[Person]:
        return self.known


@dataclass
class StoppableLive(FakeLive):
    """A connected device that can be stopped and has a volume."""

    async def stop(self) -> None:
        self.told.append("stop")

    async def set_volume(self, volume: int) -> None:
        self.told.append(f"volume {volume}")


@dataclass
class StartableLive(FakeLive):
    """A connected device that may be able to listen after an announcement."""

    can_be_started: bool = True


class Scene:
    """A client of a broker, and one approved board in the kitchen."""

    def __init__(self, settings: MqttSettings = SETTINGS, connect: Connect | None = None) -> None:
        """`connect`: connects to a real broker."""
        board = replace(
            device("dev_1"), name="Board", area="Kitchen", profile=DeviceProfile(volume=50)
        )
        self.broker, self.registry = FakeBroker(), FakeRegistry(known=[board])
        self.presence, self.people = Presence(), FakePeople([Person("spk_1", "Ben")])
        self.sessions, self.metrics = FakeSessions(), Counts()
        clock = LoopClock()
        self.last_turns = LastTurns(
            clock,
            keeps_words=settings.publishes_words,
            keeps_people=settings.publishes_people,
        )
        registry = cast("DeviceRegistry", self.registry)
        self.announcements = Announcements(FakeTalks(), registry, self.presence, clock)
        sources = MqttSources(
            registry=registry,
            presence=self.presence,
            announcements=self.announcements,
            sessions=cast("Sessions", self.sessions),
            people=cast("EnrolledSpeakers", self.people),
            last_turns=self.last_turns,
            version="1.0",
            check_notice=german_notices,
        )
        self.client = MqttClient(
            settings, sources, connect or self.broker.connect, clock, self.metrics
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeBroker]:
        """Runs the client; begins after its first messages."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.client.run())
            await asyncio.sleep(1)
            yield self.broker
            task.cancel()
