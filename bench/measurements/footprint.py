"""What a server holds when nobody is connected: memory, threads, files, tasks."""

import asyncio
from dataclasses import dataclass

import psutil
from aiohttp import ClientSession

from bench.client.address import Address
from bench.client.http import http_session, reaching
from core.errors import EarshotError

LEFT_S = 40.0
"A vanished caller is noticed after 15 s of silence; then its peer and its session close."

SETTLED_S = 3.0
"Nothing changes any more for so long: sockets of the last clients are closed, threads are gone."


class SessionsLeft(EarshotError):
    """Sessions are left though their clients are gone."""

    code = "not_empty"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of the server and all its descendants; `tasks` are the gateway's."""

    rss_mb: float
    processes: int
    threads: int
    files: int
    tasks: int


async def metrics(address: Address) -> dict[str, float]:
    """Everything at /metrics, labels as part of the name. Raises CannotConnect."""
    async with http_session(address) as http:
        return await _metrics(http, address)


async def _metrics(http: ClientSession, address: Address) -> dict[str, float]:
    with reaching(address):
        async with http.get(f"{address.url}/metrics", ssl=address.ssl()) as response:
            lines = (await response.text()).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def quiet_footprint(address: Address, pid: int) -> Footprint:
    """When every session has ended. Raises NotEmpty if that takes too long.

    It asks over one connection, which counts: the end of one per look would never be quiet.
    """
    async with http_session(address) as http:
        return await _quiet(http, address, pid)


async def _quiet(http: ClientSession, address: Address, pid: int) -> Footprint:
    loop = asyncio.get_running_loop()
    deadline, since, before = loop.time() + LEFT_S, loop.time(), None
    while True:
        shown = await _metrics(http, address)
        found = _look(pid, int(shown["earshot_tasks"]))
        counts = (shown["earshot_sessions"], found.threads, found.files, found.tasks)
        if counts != before:
            since, before = loop.time(), counts
        if counts[0] == 0 and loop.time() - since >= SETTLED_S:
            return found
        if loop.time() >= deadline:
            raise SessionsLeft(f"{counts[0]:.0f} sessions are left; {found}")
        await asyncio.sleep(0.2)  # the server is another process: there is nothing to wait on


def _look(pid: int, tasks: int) -> Footprint:
    root = psutil.Process(pid)
    family = [root, *root.children(recursive=True)]
    return Footprint(
        rss_mb=round(sum(one.memory_info().rss for one in family) / 2**20, 1),
        processes=len(family),
        threads=sum(one.num_threads() for one in family),
        files=sum(one.num_fds() for one in family),
        tasks=tasks,
    )
