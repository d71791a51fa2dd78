"""The ESPHome door with scripted engines, and the simulated satellites that it connects to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

import av
import numpy as np

from bench.client.satellite import Satellite
from core.audio import Pcm
from devices.esphome.adoption.adoption import Adoption
from devices.esphome.adoption.discovery import SERVICE, FoundSatellite, FoundSatellites
from devices.esphome.adoption.satellite_store import AdoptedSatellites
from devices.esphome.connection import EspHomeServices
from devices.esphome.door import EspHomeDoor
from devices.esphome.routes import routes
from devices.esphome.settings import EspHomeAddress, EspHomeSettings
from devices.esphome.sounds import Sounds
from devices.fleet.directory import Device, DeviceClaims, DeviceProfile
from devices.fleet.presence import DeviceActivity, Presence
from devices.fleet.wake_arbiter import WakeArbiter
from devices.notices.announcements import wait_for_any
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.sessions import Sessions
from pipeline.speech.file import SpeechFiles
from pipeline.tools.home import Home, default_home
from pipeline.tools.toolbox import Toolbox
from tests.loop import LoopbackClockLoop, run_virtual
from tests.pipeline.fakes import Adder, Counts, EchoLlm, LevelAsr, LoopClock, LoudVads, ToneTts
from tests.server.http.harness import serving

DEADLINE_S = 400

ONE, TWO = 1000, 2000
WHOLE_TURN = [
    "RUN_START",
    "STT_START",
    "STT_VAD_START",
    "STT_VAD_END",
    "STT_END",
    "INTENT_START",
    "INTENT_PROGRESS",
    "INTENT_END",
    "TTS_START",
    "TTS_END",
    "RUN_END",
]


def decoded(data: bytes) -> Pcm:
    """Returns the samples of a sound file."""
    with av.open(BytesIO(data), "r") as container:
        frames = [frame.to_ndarray() for frame in container.decode(audio=0)]
    pcm: Pcm = np.concatenate(frames, axis=1)[0].astype(np.int16)
    return pcm


class OneDevice:
    """A device directory of one device."""

    def __init__(self) -> None:
        self.device: Device | None = None
        self.device_id = "dev_1"
        self.profile = DeviceProfile()
        self.claims: list[DeviceClaims] = []
        self._next_change = asyncio.Event()

    async def check_in(self, claims: DeviceClaims) -> Device:
        self.claims.append(claims)
        if self.device is None:
            self.device = Device(
                id=self.device_id,
                kind=claims.kind,
                hardware_id=claims.hardware_id,
                name=claims.name,
                area="Kitchen",
                profile=self.profile,
            )
        return self.device

    async def find(self, kind: str, hardware_id: str, identity: bytes = b"") -> Device | None:
        return self.device

    async def all_devices(self) -> list[Device]:
        return await self.in_area("")

    def forget(self) -> None:
        self.change()
        self.device = None

    async def approve(self, device_id: str) -> Device:
        assert self.device is not None
        self.change(standing="approved")
        return self.device

    def change(self, **values: Any) -> None:
        assert self.device is not None
        self.device = replace(self.device, **values)
        self._next_change.set()
        self._next_change = asyncio.Event()

    async def in_area(self, area: str) -> list[Device]:
        return [self.device] if self.device else []

    def changed(self) -> asyncio.Event:
        return self._next_change


class OneSetting:
    """A settings store of one value."""

    def __init__(self) -> None:
        self.value: object = None

    async def read(self, key: str, device_id: str = "") -> object:
        return self.value

    async def write(self, key: str, value: object, device_id: str = "") -> None:
        self.value = value


@dataclass
class Counting(Counts):
    """Metrics that say when a count changes."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self, name: str, value: float = 1, /, **labels: str) -> None:
        super().count(name, value, **labels)
        self.changed.set()


@dataclass
class Scene:
    satellite: Satellite = field(default_factory=Satellite)
    key: str = ""
    "Key that the configuration has for the satellite."
    asr: LevelAsr = field(default_factory=lambda: LevelAsr(0.01))
    tts: ToneTts = field(default_factory=lambda: ToneTts(300))
    llm: EchoLlm = field(default_factory=lambda: EchoLlm(0.001))
    conversations: Conversations = field(default_factory=Conversations)
    directory: Any = field(default_factory=OneDevice)
    metrics: Counting = field(default_factory=Counting)
    settings_store: "OneSetting" = field(default_factory=OneSetting)
    is_unnamed: bool = False
    "True: the configuration does not name the satellite."
    home: Home = field(default_factory=lambda: Home(default_home()))
    max_sessions: int = 32
    wake_arbiter: WakeArbiter = field(default_factory=lambda: WakeArbiter(LoopClock()))
    errors: list[str] = field(default_factory=list)
    "Codes of the device's log."
    turns: int = 0

    def door(self) -> EspHomeDoor:
        engines = EngineSet(
            LoudVads(),
            asr={"default": self.asr, "level": self.asr},
            llm={"default": self.llm, "echo": self.llm},
            tts={"default": self.tts},
        )
        clock = LoopClock()
        self.presence = Presence(self._note)
        services = SessionServices(engines, Toolbox([Adder()], self.metrics), clock, self.metrics)
        self.sessions = Sessions(services, self.conversations, self.max_sessions)
        self.sounds = Sounds(clock)
        address = EspHomeAddress(host="127.0.0.1", port=self.satellite.port, key=self.key)
        self.adopted = AdoptedSatellites(self.settings_store, self.directory.all_devices)
        self.found = FoundSatellites()
        self.adoption = Adoption(
            adopted=self.adopted,
            directory=self.directory,
            approve=self.directory.approve,
            version="1.2.3",
        )
        return EspHomeDoor(
            EspHomeServices(
                sessions=self.sessions,
                sounds=self.sounds,
                speech_files=SpeechFiles(engines),
                presence=self.presence,
                wake_arbiter=self.wake_arbiter,
                clock=clock,
                metrics=self.metrics,
                home=self.home,
                language="en",
            ),
            self.directory,
            self.directory.approve,
            self._guard,
            EspHomeSettings(devices=() if self.is_unnamed else (address,)),
            "1.2.3",
            self.adopted,
            self.found,
        )

    async def _guard(self, work: Awaitable[None], name: str) -> None:
        await work

    def _note(self, device_id: str, kind: str, *, code: str = "", timing: Any = None) -> None:
        if kind == "error":
            self.errors.append(code)
        self.turns += kind == "turn"

    def announce(self, name: str = "satellite") -> FoundSatellite:
        """The satellite announces itself by mDNS."""
        texts = {"mac": "aabbccddeeff", "friendly_name": "Kitchen Satellite"}
        if self.satellite.key:
            texts["api_encryption"] = "Noise_NNpsk0_25519_ChaChaPoly_SHA256"
        self.found.note(f"{name}.{SERVICE}", ["127.0.0.1"], self.satellite.port, texts)
        found = self.found.find("aa:bb:cc:dd:ee:ff")
        assert found is not None
        return found

    async def until(self, condition: Callable[[], Any]) -> None:
        """Waits until something holds, within the test's deadline."""
        while not condition():
            self.metrics.changed.clear()
            await wait_for_any(self.presence.changed(), self.metrics.changed)

    async def idle(self) -> None:
        """Waits until the device does nothing."""
        await self.until(lambda: self.activity == "idle")

    async def failed(self, code: str) -> None:
        """Waits for a failed attempt to connect."""
        name = f"earshot_esphome_connect_failures:{code}"
        await self.until(lambda: self.metrics.counts.get(name))

    @property
    def activity(self) -> DeviceActivity:
        live = self.presence.find("dev_1")
        assert live is not None
        return live.activity


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[None]:
    """Runs the satellite and the door that connects to it. Afterwards nothing of it may be left."""
    async with scene.satellite.listening():
        door = scene.door()
        async with serving(routes(scene.sounds)) as client, asyncio.TaskGroup() as tasks:
            assert client._base_url is not None
            assert client._base_url.port is not None
            work = (door.run(client._base_url.port), scene.wake_arbiter.run())
            tasks_of_door = [tasks.create_task(one) for one in work]
            yield
            for task in tasks_of_door:
                task.cancel()
        assert (scene.sessions.count, scene.sounds.count, scene.presence.ids()) == (0, 0, ())


def against(
    act: Callable[[Scene, Satellite], Awaitable[Any]],
    scene: Scene | None = None,
    limit_s: float = DEADLINE_S,
) -> None:
    """Runs a test with a satellite and the door that is connected to it."""

    async def main() -> None:
        here = scene or Scene()
        async with asyncio.timeout(limit_s), running(here):
            await act(here, here.satellite)

    run_virtual(main(), LoopbackClockLoop)
