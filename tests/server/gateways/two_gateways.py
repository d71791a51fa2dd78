"""Two gateways, and a client that reaches both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psutil
from aiohttp import ClientSession, ClientTimeout, TCPConnector

from tests.server.process import Running

TWO_GATEWAYS = {"EARSHOT_SERVER__GATEWAYS": "2", "EARSHOT_SERVER__MAX_SESSIONS": "8"}

SPOKEN_HERE = {"EARSHOT_ASR__ENGINE": "pocketsphinx"}


def gateways(server: Running) -> list[psutil.Process]:
    """Returns the gateways in the order of their numbers."""
    children = psutil.Process(server.process.pid).children()
    found = [one for one in children if "--as-gateway" in one.cmdline()]
    return sorted(found, key=psutil.Process.create_time)


async def sessions(http: ClientSession) -> dict[str, float]:
    """Returns the number of sessions of each gateway."""
    async with http.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    found = (line for line in lines if line.startswith("earshot_sessions{"))
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in found}


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
