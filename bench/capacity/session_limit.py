"""Measures the session limit, and resources that remain after sessions ended."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import cycle, islice
from time import perf_counter

from bench.capacity.client_audio import packets
from bench.capacity.cpu_affinity import CpuAssignment
from bench.capacity.systems import configuration, earshot
from bench.capacity.webrtc_load import calling
from bench.capacity.websocket_load import WITHOUT_VAD, streaming
from bench.client.http import Address
from bench.client.realtime import CannotConnect, ClientTransport
from bench.measurements.resources import Footprint, quiet_footprint
from bench.server.own_server import OwnServer
from bench.tools.stats import markdown
from core.errors import EarshotError

WARM_UP = 200
"Cycles before the measurement, until caches and allocators have reached their size."

PARALLEL_CLIENTS = 4
"Number of parallel clients."

FREED_S = 10.0
"Limit for a place to become free after its session ended; an answer in progress may delay it."


class LimitViolation(EarshotError):
    """The server violated its session limit."""

    code = "not_limited"


async def limit(cores: CpuAssignment, sessions: int) -> str:
    """Fills the server, half over WebRTC; checks that it refuses the next session and serves the
    others.

    Returns the report. Raises LimitViolation, CannotConnect.
    """
    config = configuration(answer_ms=60_000, is_deaf=False, max_sessions=sessions)
    calls = sessions // 2
    async with earshot(cores, config) as server, AsyncExitStack() as stack:
        address = server.address
        callers = await stack.enter_async_context(calling(address, calls, packets()))
        rest = streaming(address, sessions - calls - 1, WITHOUT_VAD)
        streams = await stack.enter_async_context(rest)
        async with streaming(address, 1, WITHOUT_VAD) as (last,):
            refusals = [await _refused(server, transport) for transport in ("webrtc", "ws")]
            for stream in (*streams, last):
                await stream.wait_for_answer()
            for caller in callers:
                await caller.wait_for_packet()
        freed_s = await _seconds_until_free(address)
    lines = [f"{sessions} sessions ({calls} of them calls), then:"]
    lines += [f"- {text}" for text in refusals]
    lines += [
        "- all open sessions continued",
        f"- after one session ended, a new one was admitted within {freed_s:.2f} s",
    ]
    return "\n".join(lines)


async def _refused(server: OwnServer, transport: ClientTransport) -> str:
    """Returns the server's refusal. Raises LimitViolation when it did not refuse properly."""
    began = perf_counter()
    try:
        await _connect_once(server.address, transport)
    except CannotConnect as error:
        took_ms = 1000 * (perf_counter() - began)
        if "answered 503" not in str(error):
            raise LimitViolation(f"refused with: {error}") from error
        return f"{transport}: {error} (in {took_ms:.0f} ms)"
    raise LimitViolation(f"one more session over {transport} was admitted")


async def _seconds_until_free(address: Address) -> float:
    """Returns the seconds until a new session is admitted. Raises LimitViolation."""
    began = perf_counter()
    while True:
        try:
            await _connect_once(address, "ws")
        except CannotConnect as error:
            if perf_counter() - began > FREED_S:
                raise LimitViolation(f"no place is free after {FREED_S:g} s: {error}") from error
            # no event reports a free place: a client would also try again
            await asyncio.sleep(0.01)
        else:
            return perf_counter() - began


async def cycles(cores: CpuAssignment, count: int) -> str:
    """Connects and leaves this many times, over both transports in turn; returns resources before
    and after."""
    began = perf_counter()
    warm_up = min(WARM_UP, count)
    before, after = await cycles_of(cores, count, warm_up)
    head = f"{count} cycles after {warm_up} of warm-up, {perf_counter() - began:.0f} s in all:"
    return f"{head}\n\n{footprints({'before': before, 'after': after})}"


async def cycles_of(
    cores: CpuAssignment, count: int, warm_up: int = WARM_UP
) -> tuple[Footprint, Footprint]:
    """Returns the resources of an empty server before and after. Raises CannotConnect,
    SessionsLeft."""
    async with earshot(cores, configuration(answer_ms=2000, is_deaf=False)) as server:
        await come_and_go(server.address, warm_up)
        before = await quiet_footprint(server.address, server.pid)
        await come_and_go(server.address, count)
        return before, await quiet_footprint(server.address, server.pid)


async def come_and_go(address: Address, count: int) -> None:
    """Opens this many sessions, each left as soon as the server answers. Raises CannotConnect."""
    both: Sequence[ClientTransport] = ("webrtc", "ws")
    transports = islice(cycle(both), count)

    async def client() -> None:
        for transport in transports:
            await _connect_once(address, transport)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(PARALLEL_CLIENTS):
                tasks.create_task(client())
    except* CannotConnect as group:
        raise CannotConnect(str(group.exceptions[0])) from group


async def _connect_once(address: Address, transport: ClientTransport) -> None:
    """Connects, waits for the server's first answer and leaves. Raises CannotConnect."""
    if transport == "webrtc":
        async with calling(address, 1, packets()):
            return
    async with streaming(address, 1, WITHOUT_VAD) as (stream,):
        await stream.wait_for_answer()


def footprints(found: dict[str, Footprint]) -> str:
    """Returns the Markdown table of the resources."""
    rows = [
        [
            when,
            f"{measured.rss_mb:.1f}",
            str(measured.threads),
            str(measured.files),
            str(measured.tasks),
        ]
        for when, measured in found.items()
    ]
    return markdown(["", "memory, MB RSS", "threads", "files", "tasks"], rows)
