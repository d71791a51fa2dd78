"""Two gateways, and a client that reaches both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import ClientSession, ClientTimeout, TCPConnector

from tests.server.process import Running

TWO_GATEWAYS = {"EARSHOT_SERVER__GATEWAYS": "2", "EARSHOT_SERVER__MAX_SESSIONS": "8"}


@asynccontextmanager
async def client(server: Running) -> AsyncIterator[ClientSession]:
    """A client that makes a connection for each request: the gateways get them in turn."""
    async with ClientSession(
        server.url, connector=TCPConnector(force_close=True), timeout=ClientTimeout(30)
    ) as http:
        yield http


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():  # noqa: ASYNC110 - other processes set no event
        await asyncio.sleep(0.1)
