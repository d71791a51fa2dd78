"""Runs the configured tools while the server runs: functions, plugins and MCP servers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager

from core.errors import ConfigError
from core.ports import ToolProvider
from engines.base import LlmWithServer
from pipeline.tools.functions import FunctionTools, load_functions
from pipeline.tools.guards import Guards
from pipeline.tools.home import Home
from pipeline.tools.mcp import mcp_tools
from server.compose.plugins import create_tools
from server.config.sections.tools import ToolsConfig

logger = logging.getLogger(__name__)


def check_guarded_devices(guards: Guards, home: Home) -> None:
    """Raises ConfigError for a guard of a device that the home does not have: a typo would leave
    the real one open."""
    known = {entity.config.id for entity in home.entities()}
    if unknown := sorted(guards.devices - known):
        raise ConfigError(
            f"tools.guards: the home has no device {unknown[0]!r}; it has"
            f" {', '.join(sorted(known))}"
        )


def warn_of_unknown_tools(guards: Guards, names: Collection[str]) -> None:
    """Logs the guarded tools that do not exist now. Those of MCP servers and devices come later."""
    for name in sorted(guards.tools.difference(names)):
        logger.warning("! tools.guards: there is no tool %r yet; a typo would leave it open", name)


@asynccontextmanager
async def configured_tools(
    config: ToolsConfig, reserved_names: Collection[str] = ()
) -> AsyncIterator[tuple[ToolProvider, ...]]:
    """Yields functions of modules, then tools of other packages, then MCP servers. MCP servers
    connect in the background; leaving the context disconnects them. `reserved_names`: names of
    built-in tools. Raises ConfigError; inside an ExceptionGroup once the context is entered."""
    servers = mcp_tools(config.mcp)
    functions = FunctionTools(await asyncio.to_thread(load_functions, config.modules))
    plugins = await asyncio.to_thread(create_tools, config, reserved_names)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for label, plugin in plugins.items():
            logger.info("tools of %s", label)
            if isinstance(plugin, LlmWithServer):
                await stack.enter_async_context(plugin.running())
        background = [
            tasks.create_task(server.run(), name=f"mcp-{server.name}") for server in servers
        ]
        yield (functions, *plugins.values(), *servers)
        for task in background:
            task.cancel()
