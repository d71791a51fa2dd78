"""Measures a server's start-up time, its memory idle and under load, and its CPU per session.

    python -m bench.measurements.resources --sessions 10 --seconds 30

It starts a server of its own. All sessions talk at the same time, each one question after the
other.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from aiohttp import ClientSession

from bench.client.conversation import TurnReport, open_conversation
from bench.client.http import Address, connect_errors, http_session
from bench.client.realtime import ClientTransport, SessionRequest
from bench.server.own_server import own_server
from bench.tools.clips import COMMANDS, synthesise
from bench.tools.stats import machine, markdown, spread
from core.audio import Pcm
from core.errors import EarshotError

SAMPLE_EVERY_S = 1.0
"Time between two readings of the memory."

SETTLE_S = 2.0
"Pause after the start, until everything that is loaded late is loaded."

TURN_TIMEOUT_S = 30.0
"Longest wait for an answer."


class MeasurementError(EarshotError):
    """A session was refused or lost."""

    code = "unmeasured"


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resources of all the server's processes together."""

    rss_mb: float
    "Pages that several processes share are counted in each."
    pss_mb: float
    """Shared pages are divided among the processes that share them: the memory that ending the
    server would free."""
    cpu_s: float
    processes: int


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """Result of the measurement."""

    start_s: float
    idle: ResourceUse
    talking: ResourceUse
    "The largest memory while all sessions talked; CPU of that time only."
    after: ResourceUse
    "After all sessions have ended."
    sessions: int
    seconds: float
    reports: Sequence[TurnReport]


def use_of(pid: int) -> ResourceUse:
    """Returns the resources of the process and all its descendants."""
    root = psutil.Process(pid)
    rss = pss = cpu_s = 0.0
    processes = 0
    for process in (root, *root.children(recursive=True)):
        try:
            memory, times = process.memory_full_info(), process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        rss += memory.rss
        pss += getattr(memory, "pss", memory.uss)  # only Linux has pss
        cpu_s += times.user + times.system
        processes += 1
    return ResourceUse(rss / 2**20, pss / 2**20, cpu_s, processes)


async def measure(sessions: int, seconds: float, transport: ClientTransport) -> ResourceReport:
    """Measures a server. Raises EarshotError when it does not start or refuses a session."""
    clips = [synthesise(text) for text in COMMANDS]
    async with own_server() as server:
        await asyncio.sleep(SETTLE_S)
        idle = use_of(server.pid)
        reports: list[TurnReport] = []
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(sessions):
                    clip_order = clips[number % len(clips) :] + clips[: number % len(clips)]
                    work = _converse(
                        server.address, transport, clip_order, began + seconds, reports
                    )
                    tasks.create_task(work)
                peak = await _peak_use(server.pid, began + seconds)
        except* EarshotError as group:  # all sessions fail for the same reason
            raise MeasurementError(str(group.exceptions[0])) from group
        duration_s = loop.time() - began
        after = use_of(server.pid)
    spent = ResourceUse(peak.rss_mb, peak.pss_mb, after.cpu_s - idle.cpu_s, peak.processes)
    return ResourceReport(server.start_s, idle, spent, after, sessions, duration_s, reports)


async def _converse(
    address: Address,
    transport: ClientTransport,
    clips: Sequence[Pcm],
    until: float,
    reports: list[TurnReport],
) -> None:
    loop = asyncio.get_running_loop()
    async with open_conversation(
        address, transport, SessionRequest(), timeout_s=TURN_TIMEOUT_S
    ) as (
        conversation,
        _,
    ):
        turn = 0
        while loop.time() < until:
            reports.append(await conversation.say(clips[turn % len(clips)]))
            turn += 1


async def _peak_use(pid: int, until: float) -> ResourceUse:
    """Returns the resources with the most memory until then."""
    loop = asyncio.get_running_loop()
    peak = use_of(pid)
    while loop.time() < until:
        await asyncio.sleep(SAMPLE_EVERY_S)
        peak = max(peak, use_of(pid), key=lambda use: use.pss_mb)
    return peak


def table(found: ResourceReport) -> str:
    """Returns Markdown for docs/performance.md."""
    live = found.sessions
    share = 100 * found.talking.cpu_s / found.seconds

    def memory(use: ResourceUse) -> str:
        return f"{use.rss_mb:.0f} MB RSS, {use.pss_mb:.0f} MB PSS ({use.processes} processes)"

    rows = [
        ["start-up: process to ready", f"{found.start_s:.1f} s"],
        ["memory, 0 sessions", memory(found.idle)],
        [f"memory, {live} sessions talking (peak)", memory(found.talking)],
        ["memory, after they ended", memory(found.after)],
        [f"CPU, {live} sessions talking", f"{share:.0f} % of one core"],
        ["CPU per session", f"{share / live:.1f} % of one core"],
    ]
    lines = [markdown(["what", "measured"], rows)]
    times = [r.voice_to_voice_ms for r in found.reports if r.voice_to_voice_ms is not None]
    head = [f"ms, {live} sessions at once", "p50", "p95", "min", "max", "turns"]
    lines.append(markdown(head, [["voice to voice, at the clients", *spread(times)]]))
    missed = sum(report.status != "answered" for report in found.reports)
    lines.append(f"{missed} of {len(found.reports)} turns were not answered.")
    return "\n\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.resources", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--transport", choices=("webrtc", "ws"), default="webrtc")
    options = parser.parse_args(arguments)
    if options.sessions < 1 or options.seconds <= 0:
        parser.error("--sessions and --seconds must be more than 0")
    measured_on = machine()
    try:
        found = asyncio.run(measure(options.sessions, options.seconds, options.transport))
    except KeyboardInterrupt:
        return 130
    except EarshotError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    print(f"{options.transport}, {options.sessions} sessions; {measured_on}\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())


# Resources of a server without connections: memory, threads, files, tasks.

END_TIMEOUT_S = 40.0
"""Limit for the sessions to end. A vanished caller is noticed after 15 s of silence; then its peer
and its session close."""

UNCHANGED_S = 3.0
"""Time without changes after which the server counts as idle: sockets are closed and threads have
ended."""


class SessionsLeft(EarshotError):
    """Sessions remain although their clients are gone."""

    code = "not_empty"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resources of the server and all its descendants; `tasks` are those of the main process."""

    rss_mb: float
    processes: int
    threads: int
    files: int
    tasks: int


async def metrics(address: Address) -> dict[str, float]:
    """Returns all values at /metrics, with labels as part of the name. Raises CannotConnect."""
    async with http_session(address) as http:
        return await _metrics(http, address)


async def _metrics(http: ClientSession, address: Address) -> dict[str, float]:
    with connect_errors(address):
        async with http.get(f"{address.url}/metrics", ssl=address.ssl()) as response:
            lines = (await response.text()).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def quiet_footprint(address: Address, pid: int) -> Footprint:
    """Waits until every session has ended. Raises SessionsLeft if that takes too long.

    It uses one connection for all requests: closing a connection after each would change the
    counts.
    """
    async with http_session(address) as http:
        return await _quiet(http, address, pid)


async def _quiet(http: ClientSession, address: Address, pid: int) -> Footprint:
    loop = asyncio.get_running_loop()
    deadline, since, before = loop.time() + END_TIMEOUT_S, loop.time(), None
    while True:
        shown = await _metrics(http, address)
        found = _footprint(pid, int(shown["earshot_tasks"]))
        counts = (shown["earshot_sessions"], found.threads, found.files, found.tasks)
        if counts != before:
            since, before = loop.time(), counts
        if counts[0] == 0 and loop.time() - since >= UNCHANGED_S:
            return found
        if loop.time() >= deadline:
            raise SessionsLeft(f"{counts[0]:.0f} sessions are left; {found}")
        # the server is another process, so there is no event to wait for
        await asyncio.sleep(0.2)


def _footprint(pid: int, tasks: int) -> Footprint:
    root = psutil.Process(pid)
    family = [root, *root.children(recursive=True)]
    return Footprint(
        rss_mb=round(sum(process.memory_info().rss for process in family) / 2**20, 1),
        processes=len(family),
        threads=sum(process.num_threads() for process in family),
        files=sum(process.num_fds() for process in family),
        tasks=tasks,
    )
