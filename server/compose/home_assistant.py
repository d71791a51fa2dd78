"""Home Assistant as the house, if it is configured: its client, running while the server does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from core.ports import Clock, Metrics, ToolProvider
from devices.home_assistant.client import HomeAssistant, State
from devices.home_assistant.entities import Mirror
from devices.home_assistant.tools import HouseTools
from pipeline.tools.home import Home
from pipeline.tools.home.state import Reach
from pipeline.tools.mcp import McpTools, mcp_tools
from server.config.sections.home_assistant import HomeAssistantConfig

NAMES_WAIT_S = 3.0
"For names at start: what learns them once, as PocketSphinx does, would else have none of them."

MCP_NAME = "home_assistant"

REACH: Mapping[State, Reach] = {
    State.CONNECTING: "away",
    State.CONNECTED: "here",
    State.AWAY: "away",
    State.REFUSED: "refused",
}


@dataclass(frozen=True, slots=True)
class HouseParts:
    """What the rest of the server has of it."""

    providers: tuple[ToolProvider, ...]
    keywords: Callable[[], Sequence[str]]
    "Names for recognition, as they are now."


@asynccontextmanager
async def house(
    config: HomeAssistantConfig, shown: Home, clock: Clock, metrics: Metrics
) -> AsyncIterator[HouseParts | None]:
    """None where there is none. It connects in the background; leaving ends that. `shown`: what
    the page shows, which becomes this house.

    Raises ConfigError; from the body on as an ExceptionGroup.
    """
    if not config.url:
        yield None
        return
    home = HomeAssistant(config.as_settings(), clock, metrics, mirror=Mirror(shown))
    servers = mcp_tools({MCP_NAME: config.as_mcp_server()} if config.use == "tools" else {})
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(home.run(), name="home-assistant")]
        running += [tasks.create_task(_shown(home, shown), name="home-reach")]
        running += [tasks.create_task(_while_let_in(home, one), name="home-mcp") for one in servers]
        await home.settled(NAMES_WAIT_S)
        yield HouseParts(
            (HouseTools(home, clock), *servers), lambda: home.house.keywords(config.keywords)
        )
        for task in running:
            task.cancel()


async def _shown(home: HomeAssistant, shown: Home) -> None:
    """Let the page say whether the house is there."""
    while True:
        state = home.state
        shown.show_reach(REACH[state])
        await home.until(*(set(State) - {state}))


async def _while_let_in(home: HomeAssistant, server: McpTools) -> None:
    """Its MCP server only where its WebSocket has taken the token: a client that goes on with a
    wrong one gets our address banned."""
    while True:
        await home.until(State.CONNECTED)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(server.run())
            await home.until(State.AWAY, State.REFUSED)
            running.cancel()
