"""The xiaozhi API behind the real error handling, with scripted engines that work through Opus."""

import asyncio
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Any

import numpy as np
from aiohttp import ClientSession

from core.audio import AudioFrame
from core.errors import NotFound
from devices.fleet.directory import Device, DeviceClaims
from devices.fleet.presence import ConnectedDevice, DeviceEventSink, Presence
from devices.fleet.wake_arbiter import WakeArbiter
from devices.xiaozhi.device_tools import DeviceToolProvider
from devices.xiaozhi.door import XiaozhiDoor
from devices.xiaozhi.routes import routes
from devices.xiaozhi.settings import XiaozhiSettings
from engines.base import AsrItem, AsrResult, WordMark
from firmware_protocol.xiaozhi.state_machine import DialogueSettings
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.sessions import Sessions
from pipeline.tools.toolbox import Toolbox
from server.http.auth import AccessGate
from serving.asr.scheduling import DecodePriority
from serving.speaker.recognition import SpeakerRecognition
from tests.devices.xiaozhi.simulated_board import WORDS, Board
from tests.loop import LoopbackClockLoop, run_virtual
from tests.pipeline.fakes import Adder, Counts, EchoLlm, LevelAsr, LoopClock, LoudVads, ToneTts
from tests.server.http.harness import serving

DEADLINE_S = 30
LOOPBACK = (ip_network("127.0.0.0/8"),)


class ToneAsr(LevelAsr):
    """A recogniser of tones, one word each; two equal tones in a row are one word."""

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        silent = replace(item, pcm=np.zeros(len(item.pcm), np.int16))
        result = await super().decode(silent, priority)
        words: list[str] = []
        for at in range(0, len(item.pcm) - 960, 960):
            part = item.pcm[at : at + 960].astype(float)
            if np.sqrt(np.mean(part**2)) < 3000:  # also of the end of a word
                continue
            hz = np.abs(np.fft.rfft(part * np.hanning(960))).argmax() * 16_000 / 960
            word = min(WORDS, key=lambda one: abs(WORDS[one] - hz))
            if not words or words[-1] != word:
                words.append(word)
        return replace(result, text=" ".join(words))


class SineTts(ToneTts):
    """A voice that makes a sine for each clause: constant levels do not survive Opus."""

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        async for frame in super().speak(text, language=language, voice=voice, speed=speed):
            at = frame.start + np.arange(len(frame.pcm))
            sine = 9000 * np.sin(2 * math.pi * 440 * at / frame.rate_hz)
            yield AudioFrame(sine.astype(np.int16), frame.rate_hz, frame.start)


class MemoryDirectory:
    """A device directory in memory. Devices are approved on arrival, or by `approve`."""

    def __init__(self, *, approves: bool = True, prefix: str = "dev_") -> None:
        self.approves, self.prefix = approves, prefix
        self.known: dict[str, Device] = {}
        "By hardware id."
        self.tokens: dict[str, str] = {}
        "Token -> hardware id."
        self.contacts: list[DeviceClaims] = []
        self._next_change = asyncio.Event()

    async def check_in(self, contact: DeviceClaims) -> Device:
        self.contacts.append(contact)
        device = self.known.get(contact.hardware_id) or Device(
            id=f"{self.prefix}{len(self.known)}",
            kind=contact.kind,
            hardware_id=contact.hardware_id,
            name=contact.name,
            area="Kitchen",
            standing="approved" if self.approves else "new",
            pairing_code="" if self.approves else f"{123456 + len(self.known)}",
        )
        device = replace(device, firmware=contact.firmware, board=contact.board)
        self.known[contact.hardware_id] = device
        return device

    async def find(self, kind: str, hardware_id: str, identity: bytes = b"") -> Device | None:
        return self.known.get(hardware_id)

    async def issue_token(self, device_id: str, identity: bytes = b"") -> str:
        found = [one for one in self.known.values() if one.id == device_id]
        if not found or not (found[0].standing == "approved" or found[0].pairing_code):
            raise NotFound("no such device")
        token = f"dvt-secret-{len(self.tokens)}"
        self.tokens[token] = found[0].hardware_id
        return token

    async def device_with_key(self, token: str, identity: bytes = b"") -> Device | None:
        device = self.known.get(self.tokens.get(token, ""))
        return device if device and device.standing == "approved" else None

    async def waiting_device_with_key(self, token: str, identity: bytes) -> Device | None:
        device = self.known.get(self.tokens.get(token, ""))
        return device if device and device.standing == "new" and device.pairing_code else None

    async def in_area(self, area: str) -> Sequence[Device]:
        return [one for one in self.known.values() if one.area == area]

    def changed(self) -> asyncio.Event:
        return self._next_change

    def change(self, hardware_id: str, **values: Any) -> None:
        self.known[hardware_id] = replace(self.known[hardware_id], **values)
        self._next_change.set()
        self._next_change = asyncio.Event()

    def approve(self, hardware_id: str) -> None:
        self.change(hardware_id, standing="approved", pairing_code="")


@dataclass
class Scene:
    asr: ToneAsr = field(default_factory=lambda: ToneAsr(0.01, languages=("de", "en")))
    tts: SineTts = field(default_factory=lambda: SineTts(300))
    spare: SineTts | None = None
    "A second voice engine."
    llm: EchoLlm = field(default_factory=lambda: EchoLlm(0.001))
    directory: Any = field(default_factory=MemoryDirectory)
    "A `Directory`."
    settings: XiaozhiSettings = field(default_factory=lambda: XiaozhiSettings(networks=LOOPBACK))
    conversations: Conversations = field(default_factory=Conversations)
    metrics: Counts = field(default_factory=Counts)
    max_sessions: int = 32
    gate: AccessGate | None = None
    witness: DeviceEventSink | None = None
    speakers: SpeakerRecognition | None = None
    wake_arbiter: WakeArbiter = field(default_factory=lambda: WakeArbiter(LoopClock()))

    def door(self) -> XiaozhiDoor:
        engines = EngineSet(
            LoudVads(),
            asr={"default": self.asr, "level": self.asr},
            llm={"default": self.llm, "echo": self.llm},
            tts={"default": self.tts} | ({"spare": self.spare} if self.spare else {}),
        )
        self.tools, self.presence = DeviceToolProvider(), Presence(self.witness)
        toolbox = Toolbox([Adder(), self.tools], self.metrics)
        services = SessionServices(
            engines, toolbox, LoopClock(), self.metrics, speakers=self.speakers
        )
        self.sessions = Sessions(services, self.conversations, self.max_sessions)
        return XiaozhiDoor(
            self.sessions,
            self.directory,
            self.presence,
            self.tools,
            LoopClock(),
            self.metrics,
            self.settings,
            "1.2.3",
            {"spk_1": 70}.get,
            self.wake_arbiter,
        )

    def with_dialogue(self, **values: Any) -> "Scene":
        chosen = replace(DialogueSettings(), **values)
        return replace(self, settings=replace(self.settings, dialogue=chosen))


@dataclass
class Server:
    client: ClientSession
    scene: Scene

    def board(self, **values: Any) -> Board:
        return Board(self.client, **values)

    async def left(self) -> None:
        """Waits until no connection is open, within the test's deadline."""
        while True:
            if not (self.scene.sessions.count or self.scene.presence.ids()):
                return
            await asyncio.sleep(0.01)

    async def ready(self, **values: Any) -> Board:
        """Returns a board that listens."""
        board = self.board(**values)
        await board.boot()
        await board.open()
        return board


@asynccontextmanager
async def running(scene: Scene | None = None) -> AsyncIterator[Server]:
    """Runs the API; afterwards nothing of its connections may be left."""
    scene = scene or Scene()
    door = scene.door()
    async with serving(routes(door), gate=scene.gate) as client:
        server = Server(client, scene)
        yield server
        await server.left()


def live_of(server: Server, board: Board) -> ConnectedDevice:
    """Returns the connection of a board that is connected."""
    live = server.scene.presence.find(server.scene.directory.known[board.mac].id)
    assert live is not None
    return live


def against(
    act: Callable[[Server], Awaitable[Any]], scene: Scene | None = None, limit_s: float = DEADLINE_S
) -> None:
    """Runs a scene against a server, within a time limit."""

    async def main() -> None:
        async with asyncio.timeout(limit_s), running(scene) as server:
            await act(server)

    run_virtual(main(), LoopbackClockLoop)
