"""The WHIP API behind the real error handling, with real sessions and scripted engines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from aiohttp import ClientSession

from core.http.routes import Route
from engines.base import AsrItem, AsrResult
from pipeline.session.sessions import Sessions
from server.http.auth import AccessGate
from serving.asr.scheduling import DecodePriority
from signaling.whip.door import WhipDoor
from signaling.whip.publication import WhipSettings
from signaling.whip.routes import whip_routes
from tests.pipeline.fakes import LevelAsr, World
from tests.server.http.harness import serving

DEADLINE_S = 30
"A limit for work that takes a second or two on a quiet machine."


class OpusAsr(LevelAsr):
    """A recogniser that returns "one" for anything loud, because a codec keeps no exact levels."""

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        loud = np.convolve(np.abs(item.pcm), np.ones(320) / 320, "same") > 500
        pcm = np.where(loud, 1000, 0).astype(np.int16)
        return await super().decode(replace(item, pcm=pcm), priority)


@dataclass
class Setup:
    settings: WhipSettings = field(default_factory=WhipSettings)
    max_sessions: int = 4
    gate: AccessGate | None = None
    routes: tuple[Route, ...] = ()
    "Routes in addition to those of WHIP."
    world: World = field(default_factory=lambda: World(asr=OpusAsr()))


@dataclass
class Server:
    http: ClientSession
    door: WhipDoor
    sessions: Sessions
    world: World


@asynccontextmanager
async def running(setup: Setup) -> AsyncIterator[Server]:
    """Runs a server; afterwards nothing of its sessions and publications may be left."""
    world = setup.world
    sessions = Sessions(world.services(), world.conversations, setup.max_sessions)

    async def guard(work: Awaitable[None], name: str) -> None:
        await work

    door = WhipDoor(sessions, world.metrics, guard, setup.settings)
    async with asyncio.TaskGroup() as tasks:
        publications = tasks.create_task(door.run())
        async with serving((*whip_routes(door), *setup.routes), gate=setup.gate) as http:
            yield Server(http, door, sessions, world)
        publications.cancel()
    assert (sessions.count, door.publications.count) == (0, 0)


def against(scene: Callable[[Server], Awaitable[Any]], setup: Setup | None = None) -> None:
    """Runs a scene against a server, within a time limit."""

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), running(setup or Setup()) as server:
            await scene(server)

    asyncio.run(main())
