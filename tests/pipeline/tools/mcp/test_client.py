"""The task that keeps a connection, without a server."""

import asyncio

import pytest

from pipeline.tools.mcp import McpServerSettings, McpToolProvider

pytestmark = pytest.mark.live


class BreaksWhenLeft(McpToolProvider):
    """A connection whose end brings an error: its TaskGroup raises that in place of the
    cancellation."""

    def __init__(self) -> None:
        super().__init__("a", McpServerSettings(command="a"), first_wait_s=60)
        self.began = asyncio.Event()

    async def _connect(self) -> None:
        async def fail() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ConnectionError("lost, too") from None

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            await asyncio.sleep(0)
            self.began.set()
            await asyncio.Event().wait()


def test_a_cancelled_connection_ends_even_if_an_error_comes_with_it() -> None:
    async def main() -> None:
        tools = BreaksWhenLeft()
        running = asyncio.create_task(tools.run())
        await tools.began.wait()
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=1)
        assert done
        assert running.cancelled()

    asyncio.run(main())
