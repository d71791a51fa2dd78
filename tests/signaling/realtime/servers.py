"""The Realtime API and GPT-Live behind the real error handling, with scripted engines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession

from pipeline.session.sessions import Sessions
from pipeline.tools.home import Home
from server.http.auth import AccessGate
from server.runtime.metrics import PrometheusMetrics
from signaling.live.door import LiveDoor
from signaling.live.routes import routes as live_routes
from signaling.realtime.client_secrets import ClientSecretStore
from signaling.realtime.door import RealtimeDoor, RealtimeSettings
from signaling.realtime.routes import routes
from tests.loop import LoopbackClockLoop, run_virtual
from tests.pipeline.fakes import LoopClock, World
from tests.server.http.harness import serving

DEADLINE_S = 30
"A limit for work that takes a second on a quiet machine."


@dataclass
class Server:
    client: ClientSession
    door: RealtimeDoor
    live: LiveDoor
    sessions: Sessions
    world: World
    edge_metrics: PrometheusMetrics

    async def all_left(self) -> None:
        """Waits, within the test's deadline, until every session is freed."""
        while True:
            if self.sessions.count == 0:
                return
            await asyncio.sleep(0.01)


@dataclass
class Setup:
    world: World = field(default_factory=World)
    settings: RealtimeSettings = field(default_factory=RealtimeSettings)
    max_sessions: int = 4
    home: Home | None = None
    secrets: ClientSecretStore | None = None
    gate: AccessGate | None = None
    bugs: list[BaseExceptionGroup[BaseException]] = field(default_factory=list)
    "Errors that ended calls and should not have."

    async def guard(self, work: Awaitable[None], name: str) -> None:
        try:
            await work
        except ExceptionGroup as bug:
            self.bugs.append(bug)


@asynccontextmanager
async def running(setup: Setup | None = None) -> AsyncIterator[Server]:
    """Runs a server; afterwards nothing of its sessions and calls may be left."""
    setup = setup or Setup()
    world = setup.world
    sessions = Sessions(world.services(), world.conversations, setup.max_sessions)
    door = RealtimeDoor(
        sessions,
        world.metrics,
        setup.guard,
        home=setup.home,
        settings=setup.settings,
        secrets=setup.secrets,
    )
    live = LiveDoor(
        sessions,
        world.metrics,
        setup.guard,
        LoopClock(),
        settings=setup.settings,
        secrets=setup.secrets,
    )
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(door.run()), tasks.create_task(live.run())]
        metrics = PrometheusMetrics()
        doors = (*routes(door), *live_routes(live))
        async with serving(doors, gate=setup.gate, metrics=metrics) as client:
            yield Server(client, door, live, sessions, world, metrics)
        for running_calls in calls:
            running_calls.cancel()
    assert (sessions.count, door.calls.count, live.calls.count) == (0, 0, 0)


def against(scene: Callable[[Server], Awaitable[Any]], setup: Setup | None = None) -> None:
    """Runs a scene against a server, within a time limit."""

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), running(setup) as server:
            await scene(server)

    run_virtual(main(), LoopbackClockLoop)
