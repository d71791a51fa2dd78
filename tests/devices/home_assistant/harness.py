"""Our client, connected to a fake Home Assistant."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from core.ports import DeviceLocation, ToolContext
from devices.home_assistant.client import ConnectionState, HomeAssistantClient
from devices.home_assistant.entities import EntityMirror
from devices.home_assistant.settings import HomeAssistantSettings
from devices.home_assistant.tools import HomeAssistantTools
from tests.devices.home_assistant.fake_server import TOKEN, FakeHome
from tests.pipeline.fakes import Counts, ManualClock

ENGLISH = ToolContext("conv_1", "en")
PATIENCE_S = 30


def spoken_in(area: str, language: str = "en") -> ToolContext:
    return ToolContext("conv_1", language, DeviceLocation(area))


@asynccontextmanager
async def client(
    home: FakeHome, *, mirror: EntityMirror | None = None, **settings: Any
) -> AsyncIterator[HomeAssistantClient]:
    """Runs the client; yields after its first attempt, successful or not."""
    wanted = HomeAssistantSettings(**{"url": home.url, "token": TOKEN, "timeout_s": 5, **settings})
    house = HomeAssistantClient(
        wanted, ManualClock(), Counts(), mirror=mirror, first_wait_s=0.01, debounce_s=0
    )
    task = asyncio.create_task(house.run())
    try:
        await house.wait_for_names(PATIENCE_S)
        yield house
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def tools(
    home: FakeHome, **settings: Any
) -> AsyncIterator[tuple[HomeAssistantTools, ManualClock]]:
    clock = ManualClock()
    async with client(home, **settings) as house:
        yield HomeAssistantTools(house, clock), clock


async def reached(house: HomeAssistantClient, *states: ConnectionState) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await house.wait_for_state(*states)


async def until(is_so: Callable[[], bool]) -> None:
    """Polls until a condition holds that has no event."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.005)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 2 * PATIENCE_S))
