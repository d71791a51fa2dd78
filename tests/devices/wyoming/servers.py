"""The Wyoming server on a real socket, with scripted engines, and the `wyoming` client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Any, cast

import numpy as np
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.event import Event, Eventable

from core.errors import EarshotError
from devices.fleet.directory import ApprovalState, Device, DeviceClaims, DeviceDirectory
from devices.fleet.presence import Presence
from devices.fleet.wake_arbiter import WakeArbiter
from devices.wyoming.connection import WyomingServices
from devices.wyoming.door import WyomingDoor
from devices.wyoming.settings import WyomingSettings
from devices.wyoming.tts import WyomingSynthesizer
from engines.base.wake import WakeWordEngine
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.one_shot import OneShotResponses
from pipeline.speech.file import SpeechFiles
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.recording import Transcriber
from server.net.listeners import bind
from tests.devices.willow.wis.servers import TranslatingAsr, UsualLanguage
from tests.pipeline.fakes import Adder, Counts, EchoLlm, LoopClock, LoudVads, ToneTts

DEADLINE_S = 30
LOOPBACK = (ip_network("127.0.0.0/8"),)
SPEECH, SILENCE = 1000, 0
"Levels, as the scripted recogniser knows them: `one`."


@dataclass
class Standings:
    """A device directory in which every device has this standing."""

    standing: ApprovalState = "approved"
    area: str = ""
    came: list[str] = field(default_factory=list)

    async def check_in(self, contact: DeviceClaims) -> Device:
        self.came.append(contact.address)
        return Device(
            id="dev_1",
            kind=contact.kind,
            hardware_id=contact.hardware_id,
            name="it",
            area=self.area,
            standing=self.standing,
        )


@dataclass
class Scene:
    asr: TranslatingAsr = field(default_factory=TranslatingAsr)
    tts: ToneTts = field(default_factory=ToneTts)
    spare: ToneTts | None = None
    "A second voice engine."
    llm: EchoLlm = field(default_factory=lambda: EchoLlm(0.001))
    wake: WakeWordEngine | None = None
    conversations: Conversations = field(default_factory=Conversations)
    settings: WyomingSettings = field(
        default_factory=lambda: WyomingSettings(networks=LOOPBACK, max_connections=4)
    )
    directory: Standings = field(default_factory=Standings)
    presence: Presence = field(default_factory=Presence)
    wake_arbiter: WakeArbiter = field(default_factory=lambda: WakeArbiter(LoopClock()))
    ended: list[EarshotError] = field(default_factory=list)

    _open: int = 0
    _is_left: asyncio.Event = field(default_factory=asyncio.Event)

    async def guard(self, work: Awaitable[None], name: str) -> None:
        self._open += 1
        self._is_left.clear()
        try:
            await work
        except EarshotError as error:
            self.ended.append(error)
        finally:
            self._open -= 1
            if not self._open:
                self._is_left.set()

    async def left(self) -> None:
        """Waits until the server has noticed that every client is gone."""
        if self._open:
            await self._is_left.wait()

    def door(self) -> WyomingDoor:
        engines = EngineSet(
            LoudVads(),
            asr={"default": self.asr, "level": self.asr},
            llm={"default": self.llm, "echo": self.llm},
            tts={"default": self.tts} | ({"spare": self.spare} if self.spare else {}),
            wake=self.wake,
        )
        self.metrics, clock, languages = Counts(), LoopClock(), UsualLanguage()
        services = SessionServices(engines, Toolbox([Adder()], self.metrics), clock, self.metrics)
        self.exchanges = OneShotResponses(services, self.conversations, languages)
        self.services = WyomingServices(
            engines,
            Transcriber(engines),
            WyomingSynthesizer(engines, SpeechFiles(engines), languages),
            self.exchanges,
            self.wake_arbiter,
            "1.2.3",
        )
        directory = cast("DeviceDirectory", self.directory)
        return WyomingDoor(
            self.services, self.metrics, self.guard, self.settings, directory, self.presence
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Runs the server and yields its port; ends when every connection has ended."""
        sockets = bind("127.0.0.1", 0)
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.door().run(sockets))
            deciding = tasks.create_task(self.wake_arbiter.run())
            yield sockets[0].getsockname()[1]
            await self.left()
            running.cancel()
            deciding.cancel()


@asynccontextmanager
async def client(port: int) -> AsyncIterator[AsyncTcpClient]:
    with suppress(ConnectionError):  # leaving one that the server closed already
        async with AsyncTcpClient("127.0.0.1", port) as one:
            yield one


async def send(one: AsyncTcpClient, *events: Eventable | Event) -> None:
    for event in events:
        await one.write_event(event if isinstance(event, Event) else event.event())


async def until(one: AsyncTcpClient, kind: str) -> list[Event]:
    """Returns all events up to the first of this type, or to the end."""
    found: list[Event] = []
    with suppress(ConnectionError):  # the other side closed with something of ours unread
        while (event := await one.read_event()) is not None:
            found.append(event)
            if event.type == kind:
                break
    return found


def kinds(events: Sequence[Event]) -> list[str]:
    """Returns the types of events, each once if it repeats."""
    names = [event.type for event in events]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


def sound(*parts: tuple[int, int], rate: int = 16_000, channels: int = 1) -> list[Eventable]:
    """Returns the start, chunks and stop of levels, each for so many ms."""
    samples = np.concatenate(
        [np.full(rate * ms // 1000 * channels, level, np.int16) for level, ms in parts]
    )
    step = rate // 50 * channels
    form: dict[str, Any] = {"rate": rate, "width": 2, "channels": channels}
    chunks = [
        AudioChunk(audio=samples[at : at + step].tobytes(), **form)
        for at in range(0, len(samples), step)
    ]
    return [AudioStart(**form), *chunks, AudioStop()]


def limited(scene: Scene, **settings: Any) -> Scene:
    return replace(scene, settings=replace(scene.settings, **settings))


def run(scene: Scene, *said: object, last: str) -> list[Event]:
    """Sends events over a connection; returns the received ones up to type `last`."""

    async def main() -> list[Event]:
        async with scene.serving() as port, client(port) as one:
            await send(one, *said)  # type: ignore[arg-type]
            return await until(one, last)

    return asyncio.run(main())


def texts(events: list[Event], kind: str) -> list[str]:
    return [event.data["text"] for event in events if event.type == kind]
