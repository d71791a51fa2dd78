"""Connects Home Assistant while the server runs, if it is configured. Its devices then replace the
demo home's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.errors import ConfigError
from core.ports import Clock, Metrics, ToolProvider
from devices.home_assistant.client import ConnectionState, HomeAssistantClient
from devices.home_assistant.entities import EntityMirror
from devices.home_assistant.tools import HomeAssistantTools
from pipeline.tools.guards import NO_GUARDS, Guards
from pipeline.tools.home import Home
from pipeline.tools.home.state import HomeReachability, OnOff
from pipeline.tools.mcp import McpToolProvider, mcp_tools
from server.config.sections.home_assistant import HomeAssistantConfig

NAMES_WAIT_S = 3.0
"""Longest wait at start for Home Assistant's names, in seconds. Engines that learn names only once,
such as PocketSphinx, would otherwise know none of them."""

MCP_NAME = "home_assistant"
"Name of Home Assistant's MCP server among the configured ones."

REACHABILITY: Mapping[ConnectionState, HomeReachability] = {
    ConnectionState.CONNECTING: "away",
    ConnectionState.CONNECTED: "here",
    ConnectionState.AWAY: "away",
    ConnectionState.REFUSED: "refused",
}
"Connection state of the client -> state that the page shows."


@dataclass(frozen=True, slots=True)
class HomeAssistantServices:
    """Tools and names that Home Assistant gives to the rest of the server."""

    providers: tuple[ToolProvider, ...]
    keywords: Callable[[], Sequence[str]]
    "Returns the current names of devices and rooms, for recognition."
    switch: Callable[[str, OnOff], Coroutine[Any, Any, None]]
    "Switches one entity, for a click on the page."


@asynccontextmanager
async def run_home_assistant(
    config: HomeAssistantConfig,
    demo_home: Home,
    clock: Clock,
    metrics: Metrics,
    guards: Guards = NO_GUARDS,
) -> AsyncIterator[HomeAssistantServices | None]:
    """Yields Home Assistant's tools and names, or None if it is not configured. It connects in the
    background; leaving the context disconnects. `demo_home`: the home that the page shows; it
    mirrors Home Assistant. `guards`: refuse changes of devices. Raises ConfigError; inside an
    ExceptionGroup once the context is entered."""
    if not config.url:
        yield None
        return
    if guards.devices and config.use == "tools":
        raise ConfigError(
            'tools.guards: devices cannot be guarded with home_assistant.use = "tools", where'
            ' Home Assistant chooses the devices; name its tools instead, or use "conversation"'
        )
    client = HomeAssistantClient(
        config.as_settings(), clock, metrics, mirror=EntityMirror(demo_home)
    )
    servers = mcp_tools({MCP_NAME: config.as_mcp_server()} if config.use == "tools" else {})
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(client.run(), name="home-assistant")]
        background += [
            tasks.create_task(_update_reachability(client, demo_home), name="home-reach")
        ]
        background += [
            tasks.create_task(_run_while_authenticated(client, server), name="home-mcp")
            for server in servers
        ]
        await client.wait_for_names(NAMES_WAIT_S)
        yield HomeAssistantServices(
            (HomeAssistantTools(client, clock, guards=guards), *servers),
            lambda: client.house.keywords(config.keywords),
            partial(_switch, client),
        )
        for task in background:
            task.cancel()


async def _update_reachability(client: HomeAssistantClient, demo_home: Home) -> None:
    """Keeps the connection state on the page up to date."""
    while True:
        state = client.state
        demo_home.show_reach(REACHABILITY[state])
        await client.wait_for_state(*(set(ConnectionState) - {state}))


async def _run_while_authenticated(client: HomeAssistantClient, server: McpToolProvider) -> None:
    """Runs the MCP client only while the WebSocket connection is authenticated. A client that
    retries with a wrong token gets our address banned by Home Assistant."""
    while True:
        await client.wait_for_state(ConnectionState.CONNECTED)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(server.run())
            await client.wait_for_state(ConnectionState.AWAY, ConnectionState.REFUSED)
            running.cancel()


async def _switch(home: HomeAssistantClient, entity_id: str, state: OnOff) -> None:
    """Switches one entity. Raises HomeAssistantError."""
    domain = entity_id.partition(".")[0]
    await home.call_service(domain, f"turn_{state}", {"entity_id": [entity_id]})
