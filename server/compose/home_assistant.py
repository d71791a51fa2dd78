"""Home Assistant as the house, if it is configured: its client, running while the server does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from core.ports import Clock, Metrics, ToolProvider
from devices.home_assistant.client import ConnectionState, HomeAssistantClient
from devices.home_assistant.entities import EntityMirror
from devices.home_assistant.tools import HomeAssistantTools
from pipeline.tools.home import DemoHome
from pipeline.tools.home.state import HomeReachability
from pipeline.tools.mcp import McpToolProvider, mcp_tools
from server.config.sections.home_assistant import HomeAssistantConfig

NAMES_WAIT_S = 3.0
"For names at start: what learns them once, as PocketSphinx does, would else have none of them."

MCP_NAME = "home_assistant"

REACH: Mapping[ConnectionState, HomeReachability] = {
    ConnectionState.CONNECTING: "away",
    ConnectionState.CONNECTED: "here",
    ConnectionState.AWAY: "away",
    ConnectionState.REFUSED: "refused",
}


@dataclass(frozen=True, slots=True)
class HomeAssistantServices:
    """What the rest of the server has of it."""

    providers: tuple[ToolProvider, ...]
    keywords: Callable[[], Sequence[str]]
    "Names for recognition, as they are now."


@asynccontextmanager
async def run_home_assistant(
    config: HomeAssistantConfig, shown: DemoHome, clock: Clock, metrics: Metrics
) -> AsyncIterator[HomeAssistantServices | None]:
    """None where there is none. It connects in the background; leaving ends that. `shown`: what
    the page shows, which becomes this house.

    Raises ConfigError; from the body on as an ExceptionGroup.
    """
    if not config.url:
        yield None
        return
    home = HomeAssistantClient(config.as_settings(), clock, metrics, mirror=EntityMirror(shown))
    servers = mcp_tools({MCP_NAME: config.as_mcp_server()} if config.use == "tools" else {})
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(home.run(), name="home-assistant")]
        running += [tasks.create_task(_shown(home, shown), name="home-reach")]
        running += [tasks.create_task(_while_let_in(home, one), name="home-mcp") for one in servers]
        await home.settled(NAMES_WAIT_S)
        yield HomeAssistantServices(
            (HomeAssistantTools(home, clock), *servers),
            lambda: home.house.keywords(config.keywords),
        )
        for task in running:
            task.cancel()


async def _shown(home: HomeAssistantClient, shown: DemoHome) -> None:
    """Let the page say whether the house is there."""
    while True:
        state = home.state
        shown.show_reach(REACH[state])
        await home.until(*(set(ConnectionState) - {state}))


async def _while_let_in(home: HomeAssistantClient, server: McpToolProvider) -> None:
    """Its MCP server only where its WebSocket has taken the token: a client that goes on with a
    wrong one gets our address banned."""
    while True:
        await home.until(ConnectionState.CONNECTED)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(server.run())
            await home.until(ConnectionState.AWAY, ConnectionState.REFUSED)
            running.cancel()
