"""Garbage is collected after the last session, not while one is open. Virtual time."""

import asyncio
import gc

import pytest

from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings
from server.compose.assemble import QUIET_S, collect_when_idle
from tests.loop import run_virtual
from tests.pipeline.fakes import World


def test_garbage_is_collected_once_after_the_last_session(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []
    world = World()

    async def main() -> None:
        now = asyncio.get_running_loop().time

        def collect() -> int:
            times.append(now())
            return 0

        monkeypatch.setattr(gc, "collect", collect)
        sessions = Sessions(world.services(), world.conversations, max_sessions=2)

        async def talk(begin: float, end: float) -> None:
            await asyncio.sleep(begin)
            async with sessions.open(SessionSettings(), paced_by="server"):
                await asyncio.sleep(end - begin)

        tidying = asyncio.create_task(collect_when_idle(sessions))
        async with asyncio.TaskGroup() as tasks:
            for begin, end in ((100, 200), (150, 300), (300 + QUIET_S / 2, 400), (500, 600)):
                tasks.create_task(talk(begin, end))
        await asyncio.sleep(1000)
        tidying.cancel()

    run_virtual(main())
    assert times == pytest.approx([400 + QUIET_S, 600 + QUIET_S])
