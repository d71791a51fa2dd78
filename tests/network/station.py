"""The server process in its own network namespace: `station.py '{"host": ..., ...}'`.

`POST /call` answers with a peer that hums and sends texts back; beside it are the real doors for
ICE servers, WHIP and Realtime calls. It prints one JSON line when it listens, and one when a call
or a publication has ended and everything of it should be free.
"""

import asyncio
import json
import re
import sys
import time
from collections import deque
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from aiohttp import web as aioweb
from psutil import Process

from core.audio import AudioFrame
from core.http.routes import Route
from media.webrtc.ice.settings import IceServer, IceSettings
from media.webrtc.peer import Peer, PeerCallbacks, PeerSettings
from pipeline.session.sessions import Sessions
from server.http.app import build, run_application
from server.http.auth import AccessGate
from server.net.listeners import bind
from server.runtime.metrics import PrometheusMetrics
from signaling.ice_servers import IceDoor, ice_routes
from signaling.realtime.door import RealtimeDoor, RealtimeSettings
from signaling.realtime.routes import routes as realtime_routes
from signaling.whip.door import WhipDoor
from signaling.whip.publication import WhipSettings
from signaling.whip.routes import whip_routes
from tests.media.signals import joined, peak_hz, tone
from tests.pipeline.fakes import World
from tests.signaling.whip.servers import OpusAsr

RATE_HZ = 48_000
SERVER_HZ, CALLER_HZ = 500, 900
PORT = 8080


def tell(**said: Any) -> None:
    print(json.dumps(said), flush=True)


class Call:
    """One peer, and what it noticed."""

    def __init__(self, settings: PeerSettings) -> None:
        self._ticks = 0
        self._heard: deque[AudioFrame] = deque(maxlen=50)
        self.peer = Peer(PeerCallbacks(self._hum, self._heard.append, self._echo), settings)

    @property
    def hears_the_caller(self) -> bool:
        """Waits for a second of the caller's tone."""
        is_full = len(self._heard) == self._heard.maxlen
        return is_full and abs(peak_hz(joined(list(self._heard)), 16_000) - CALLER_HZ) < 20

    def _hum(self) -> AudioFrame:
        self._ticks += 1
        return AudioFrame(tone(SERVER_HZ, 960, RATE_HZ, 960 * self._ticks), RATE_HZ, 0)

    def _echo(self, text: str | bytes) -> None:
        self.peer.send(f"{'heard' if self.hears_the_caller else 'deaf'} {text!s}")


class Station:
    """Answers calls, and keeps each until its end."""

    def __init__(self, settings: PeerSettings, tasks: asyncio.TaskGroup) -> None:
        self._settings, self._tasks = settings, tasks
        self._began_s = time.monotonic()

    async def answer(self, request: aioweb.Request) -> aioweb.Response:
        call = Call(self._settings)
        answer = await call.peer.answer(await request.text())
        self._tasks.create_task(self._lead(call))
        return aioweb.Response(status=201, text=answer, content_type="application/sdp")

    async def _lead(self, call: Call) -> None:
        before_s = time.monotonic()
        reason = await call.peer.run()
        tell(ended=reason.value, after_s=time.monotonic() - before_s, sockets=udp_sockets())


def udp_sockets() -> int:
    return len(Process().net_connections("udp"))


async def main(wishes: dict[str, Any]) -> None:
    server = IceServer(tuple(wishes["turn"]), shared_secret=wishes["secret"])
    for_clients = IceSettings((server,), wall_s=time.time)
    own = for_clients if wishes["relays"] else IceSettings()
    own = replace(own, is_relay_only=wishes["relays"])
    peer = PeerSettings(ice=own, vanished_timeout_s=2, connect_timeout_s=wishes["patience_s"])
    metrics, world = PrometheusMetrics(), World(asr=OpusAsr())
    sessions = Sessions(world.services(), world.conversations, 4)

    async def guard(work: Awaitable[None], name: str) -> None:
        await work
        counted = re.findall(r'earshot_errors_total{code="(\w+)"}', metrics.exposition().decode())
        tell(name=name, sessions=sessions.count, errors=counted, sockets=udp_sockets())

    realtime = RealtimeDoor(sessions, metrics, guard, settings=RealtimeSettings(peer=peer))
    whip = WhipDoor(sessions, world.metrics, guard, WhipSettings(replace(peer, ice=for_clients)))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(whip.run())
        tasks.create_task(realtime.run())
        station = Station(peer, tasks)
        call = Route("POST", "/call", station.answer, "Call.", "test", scope="talk")
        doors = (*ice_routes(IceDoor(for_clients)), *whip_routes(whip), *realtime_routes(realtime))
        gate = AccessGate(is_local=False, key=wishes["key"])
        app = build((call, *doors), gate, metrics, max_body_bytes=100_000)
        async with run_application(app, bind(wishes["host"], PORT), None, metrics):
            tell(listens=True, sockets=udp_sockets())
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
