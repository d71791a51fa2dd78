"""A server that no longer answers does not delay the end of its connection."""

import asyncio

import pytest

from core.ports import ToolContext
from pipeline.tools.mcp import McpServerSettings, McpToolProvider
from tests.pipeline.tools.mcp.unresponsive_server import unresponsive

pytestmark = pytest.mark.live

BOUND_S = 5
"Has room for a busy machine; without a limit it would be minutes."


@pytest.mark.parametrize(
    "silent",
    [("DELETE",), ("DELETE", "tools/call", "notifications/cancelled"), ("GET", "DELETE")],
)
def test_the_end_of_a_connection_takes_a_limited_time(silent: tuple[str, ...]) -> None:
    async def main() -> None:
        async with unresponsive(*silent) as server:
            tools = McpToolProvider("unresponsive", McpServerSettings(url=server.url))
            running = asyncio.create_task(tools.run())
            await tools.first_attempt()
            assert tools.is_connected
            call = asyncio.create_task(tools.call("wait", {}, ToolContext("", "")))
            await server.called.wait()
            if "tools/call" not in silent:
                await call
            call.cancel()
            running.cancel()
            done, _ = await asyncio.wait([running], timeout=BOUND_S)
            running.cancel()
            assert done, server.asked
            assert "DELETE" in server.asked, "the client ends its session"

    asyncio.run(main())


def test_the_wait_for_the_list_of_tools_is_limited() -> None:
    async def main() -> None:
        async with unresponsive("tools/list", "DELETE") as server:
            tools = McpToolProvider(
                "unresponsive", McpServerSettings(url=server.url), connect_timeout_s=0.5
            )
            running = asyncio.create_task(tools.run())
            try:
                async with asyncio.timeout(BOUND_S):
                    await tools.first_attempt()
            finally:
                running.cancel()
                running.cancel()
                await asyncio.wait([running], timeout=BOUND_S)
            assert not tools.is_connected

    asyncio.run(main())
