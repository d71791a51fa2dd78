"""Clients that others wrote, and our own, use the MCP server."""

import asyncio
from typing import Literal

import pytest
from mcp import Client as McpClient
from mcp_types import TextContent

from core.ports import ToolContext
from pipeline.tools.mcp import McpServerSettings, McpToolProvider
from tests.pipeline.tools.mcp.kitchens import running
from tests.web.mcp.servers import House, until

pytestmark = pytest.mark.live

CONTEXT = ToolContext("", "")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_client_of_the_mcp_package_lists_and_calls_tools(
    mode: Literal["auto", "legacy"],
) -> None:
    async def main() -> None:
        house = House()
        async with house.open() as http, McpClient(str(http.make_url("/mcp")), mode=mode) as client:
            assert house.sessions.count == (mode == "legacy")
            listed = await client.list_tools()
            assert [one.name for one in listed.tools] == ["lamps", "switch", "unlock", "wait"]
            result = await client.call_tool("lamps", {})
            assert result.structured_content is not None
            assert result.structured_content["on"] == ["shelf"]
            refused = await client.call_tool("unlock", {})
            assert refused.is_error
            assert isinstance(refused.content[0], TextContent)
            assert "certain people" in refused.content[0].text
        assert house.sessions.count == 0

    asyncio.run(main())


def test_our_own_client_uses_our_server_and_sees_its_tools_change() -> None:
    async def main() -> None:
        house = House()
        async with house.open() as http:
            tools = McpToolProvider("house", McpServerSettings(url=str(http.make_url("/mcp"))))
            async with running(tools):
                await tools.first_attempt()
                assert tools.count == 4
                done = await tools.call("switch", {"lamp": "shelf"}, CONTEXT)
                assert (done.error, house.done) == (None, ["shelf"])
                wrong = await tools.call("switch", {"lamp": "moon"}, CONTEXT)
                assert wrong.error is not None
                house.more.append("oven")
                await until(lambda: tools.count == 5)

    asyncio.run(main())
