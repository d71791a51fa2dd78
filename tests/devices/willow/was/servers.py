"""Willow's two APIs behind the real error handling and access control, with scripted engines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from core.net.ip_addresses import IpNetwork
from devices.fleet.presence import Presence
from devices.fleet.wake_arbiter import WakeArbiter
from devices.willow.was.device_lookup import ConnectedDeviceLookup
from devices.willow.was.door import WasDoor
from devices.willow.was.routes import was_routes
from devices.willow.was.settings import WasSettings
from devices.willow.wis.routes import routes
from pipeline.shared.settings import SessionSettings
from server.http.auth import AccessGate
from server.net.allowlist import networks_of
from tests.devices.willow.was.fake_directory import Known
from tests.devices.willow.was.simulated_device import SimulatedWillow
from tests.devices.willow.wis.servers import Scene as Inference
from tests.devices.willow.wis.uploads import ONE_TWO
from tests.loop import LoopbackClockLoop, run_virtual
from tests.pipeline.fakes import Counts, LoopClock
from tests.server.http.harness import KEY, serving

DEADLINE_S = 30
SPEECH = ONE_TWO.tobytes()
"The recogniser hears `one two`, and the model says it again."


@dataclass
class Scene:
    known: Known = field(default_factory=Known)
    inference: Inference = field(default_factory=Inference)
    networks: tuple[IpNetwork, ...] = field(default_factory=lambda: networks_of((), "test"))
    groups: tuple[tuple[str, ...], ...] = ()
    wake_arbiter: WakeArbiter | None = None
    "That of other doors; None: one of its own."
    audio_hosts: tuple[str, ...] = ()
    sends_secrets: bool = False
    trusts_this_machine: bool = True
    folder: Path = Path("/nonexistent")
    is_local: bool = False
    default_settings: SessionSettings = field(default_factory=SessionSettings)


@dataclass
class Server:
    client: ClientSession
    "Holds the key."
    stranger: ClientSession
    "Does not; comes from an address of its own, on which no device is."
    url: str
    door: WasDoor
    presence: Presence
    wake_arbiter: WakeArbiter
    counts: Counts
    scene: Scene
    stack: AsyncExitStack

    @property
    def known(self) -> Known:
        return self.scene.known

    async def device(
        self, number: int = 1, *, boots: bool = True, room: str = ""
    ) -> SimulatedWillow:
        """Returns a device at 127.0.1.`number`, configured unless it has to wait for approval."""
        ws_url = self.url.replace("http", "ws", 1) + "/ws"
        made = SimulatedWillow(number, ws_url, address=f"127.0.1.{number}")
        if room:
            self.known.rooms[mac_of(made)] = room
        self.stack.push_async_callback(made.off)
        if boots:
            await made.boot()
            if self.known.standing == "approved":
                await made.configured()
        return made

    async def until(self, is_it: Callable[[], Any]) -> None:
        """Waits until the condition holds, within the test's deadline."""
        await _until(is_it)


def mac_of(device: SimulatedWillow) -> str:
    return ":".join(f"{one:02x}" for one in device.mac)


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[Server]:
    """Runs a server; afterwards nothing of its devices may be left."""
    willow = scene.inference.door()
    presence, counts = Presence(), Counts()
    wake_arbiter = scene.wake_arbiter or WakeArbiter(LoopClock(), scene.groups)
    chosen = WasSettings(
        networks=scene.networks,
        trusts_this_machine=scene.trusts_this_machine,
        audio_hosts=scene.audio_hosts,
        sends_secrets=scene.sends_secrets,
        folder=scene.folder,
        version="1.2.3",
        default_settings=lambda: scene.default_settings,
    )
    was = WasDoor(
        scene.known,
        presence,
        scene.known,
        scene.inference.exchanges,
        LoopClock(),
        counts,
        scene.inference.guard,
        chosen,
        wake_arbiter,
    )
    willow._device_lookup = ConnectedDeviceLookup(was)
    gate = AccessGate(is_local=scene.is_local, key=KEY)
    async with asyncio.TaskGroup() as tasks:
        runs = [tasks.create_task(one.run()) for one in (willow, was, wake_arbiter)]
        async with serving(was_routes(was, routes(willow)), gate=gate) as plain:
            url = str(plain._base_url).rstrip("/")
            async with AsyncExitStack() as stack:
                client = ClientSession(url, headers={"Authorization": f"Bearer {KEY}"})
                await stack.enter_async_context(client)
                yield Server(client, plain, url, was, presence, wake_arbiter, counts, scene, stack)
            await _until(lambda: not was._open_count)
        for one in runs:
            one.cancel()
    assert (presence.ids(), was.connected_devices.all()) == ((), [])
    assert scene.inference.bugs == []


async def _until(is_it: Callable[[], Any]) -> None:
    while True:
        if is_it():
            return
        await asyncio.sleep(0.005)


def against(
    act: Callable[[Server], Awaitable[Any]],
    scene: Scene | None = None,
    *,
    deadline_s: float = DEADLINE_S,
) -> None:
    """Runs a scene against a server, within a time limit."""

    async def main() -> None:
        async with asyncio.timeout(deadline_s), running(scene or Scene()) as server:
            await act(server)

    run_virtual(main(), LoopbackClockLoop)


SECRETS = ("token-0123456789", "correct horse battery", "mqtt-password-1", "rest-pass-1")


IMAGE = b"\xe9" + bytes(3000)


def files(root: Path) -> Scene:
    for name, data in {
        "firmware/0.4.2/ESP32-S3-BOX-3.bin": IMAGE,
        "firmware/0.4.1/ESP32-S3-BOX-3.bin": b"old",
        "assets/audio/bell.wav": b"RIFF" + bytes(40),
        "assets/audio/bell.mp3": b"ID3",
        "assets/image/room.png": b"\x89PNG",
        "secret.bin": SECRETS[0].encode(),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return Scene(folder=root)


async def post(server: Server, path: str, body: Any) -> Any:
    response = await server.client.post(path, json=body)
    return response.status, await response.json()
