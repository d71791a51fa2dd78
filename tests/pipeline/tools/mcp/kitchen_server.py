"""An MCP server with the official package: `kitchen_server.py FOLDER [PORT [sse]]`, over stdio,
over streamable HTTP, or over HTTP with SSE as in 2024.

Files in FOLDER show what happens in it.
"""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

FOLDER = Path(sys.argv[1])
server = MCPServer("kitchen")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def weigh(item: str) -> dict[str, int]:
    """Tells what an item weighs."""
    return {"grams": len(item)}


@server.tool()
async def cook(dish: str, seconds: float) -> str:
    """Cooks; takes its time."""
    (FOLDER / "cooking").touch()
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        (FOLDER / "cancelled").touch()
        raise
    return f"{dish} is done"


@server.tool(name="oven.burn")
def burn() -> str:
    """Always fails."""
    raise ToolError("it burned")


@server.tool()
def photograph() -> list[str | Image]:
    """A text and a picture."""
    return ["a cake", Image(data=b"\x89PNG", format="png")]


@server.tool()
def secret() -> str:
    """What the environment says."""
    return os.environ.get("KITCHEN_KEY", "")


@server.tool()
async def renovate(ctx: Context) -> str:
    """There is one tool more from now on."""

    def bake(dish: str) -> str:
        """Bakes."""
        return dish

    server.add_tool(bake)
    await ctx.notify_tools_changed()
    return "renovated"


@server.tool()
def collapse() -> str:
    """The server dies."""
    print("the roof came down", file=sys.stderr, flush=True)
    os._exit(3)


if __name__ == "__main__":
    with (FOLDER / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    if "sse" in sys.argv:
        server.run("sse", port=int(sys.argv[2]))
    elif len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
