"""A message of a server is read only up to its size limit."""

import asyncio
from typing import Literal

import pytest

from core.ports import ToolContext, ToolOutcome
from pipeline.tools.mcp import McpServerSettings, McpToolProvider
from pipeline.tools.mcp.transport import MAX_MESSAGE_BYTES
from tests.pipeline.tools.mcp.kitchens import running
from tests.pipeline.tools.mcp.unresponsive_server import unresponsive

pytestmark = pytest.mark.live


async def called(sends: Literal["json", "packed", "events"], size: int) -> ToolOutcome:
    async with unresponsive(says="a" * size, sends=sends) as server:
        tools = McpToolProvider("unresponsive", McpServerSettings(url=server.url))
        async with running(tools):
            await tools.first_attempt()
            outcome = await tools.call("wait", {}, ToolContext("", ""))
            assert tools.is_connected
            return outcome


@pytest.mark.parametrize("sends", ["json", "packed", "events"])
def test_a_message_has_room_for_a_picture_but_is_limited(
    sends: Literal["json", "packed", "events"],
) -> None:
    fits = asyncio.run(called(sends, MAX_MESSAGE_BYTES - 1024))
    assert fits.error is None
    too_large = asyncio.run(called(sends, MAX_MESSAGE_BYTES))
    assert too_large.error == "tool_failed"
    assert any(size in too_large.data["message"] for size in ("4 MiB", str(MAX_MESSAGE_BYTES)))
