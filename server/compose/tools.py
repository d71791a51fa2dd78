"""The tools of the configuration, running while the server does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from core.ports import ToolProvider
from pipeline.tools.functions import FunctionTools, load_functions
from pipeline.tools.mcp import mcp_tools
from server.config.sections.tools import ToolsConfig


@asynccontextmanager
async def own_tools(config: ToolsConfig) -> AsyncIterator[tuple[ToolProvider, ...]]:
    """Functions of modules, then MCP servers, which connect in the background; leaving stops them.

    Raises ConfigError; from the body on as an ExceptionGroup.
    """
    servers = mcp_tools(config.mcp)
    functions = FunctionTools(await asyncio.to_thread(load_functions, config.modules))
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one.run(), name=f"mcp-{one.name}") for one in servers]
        yield (functions, *servers)
        for task in running:
            task.cancel()
