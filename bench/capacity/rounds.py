"""Runs rounds: in each, every system with every number of sessions, in changing order."""

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.capacity import webrtc_load, websocket_load
from bench.capacity.client_audio import appends, packets
from bench.capacity.cpu_affinity import CpuAssignment
from bench.capacity.one_run import CapacityRun
from bench.capacity.summary import extrapolated, table
from bench.capacity.systems import Bare, bare, configuration, earshot
from bench.capacity.websocket_load import ANSWER_S, ECHO, WITH_SERVER_VAD, WITHOUT_VAD
from bench.client.realtime import CannotConnect
from core.errors import EarshotError, RequestError

LONG_ANSWER_MS = 60_000
"Length of an answer that outlasts a run."

WEBRTC_SYSTEMS = ("stock", "media", "public", "quiet", "deaf", "earshot")
WEBSOCKET_SYSTEMS = ("echo", "deaf", "no-turns", "vad")
"Names of the systems, explained in docs/bench.md. The others are compared with the first."

BARE: Mapping[str, Bare] = {
    "stock": "stock",
    "media": "media",
    "public": "public",
    "quiet": "quiet",
    "echo": "echo",
}
"Kind of bare server by the name of the system."

CapacityMeasure = Callable[[int], Coroutine[Any, Any, CapacityRun]]
"Function that runs once with a number of sessions."


class SystemMeasurementError(EarshotError):
    """No run of a system succeeded."""

    code = "not_measured"


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """Parameters of a comparison."""

    cores: CpuAssignment
    seconds: float
    rounds: int
    systems: Sequence[str] | None = None
    "Names of the systems to measure; None: all."


async def webrtc(plan: CapacityPlan, calls: Sequence[int]) -> str:
    """Measures calls over WebRTC and returns the table. calls: numbers of sessions. Raises
    EarshotError."""
    wanted = _wanted(plan, WEBRTC_SYSTEMS)
    audio = packets()
    async with AsyncExitStack() as stack:
        measures: dict[str, CapacityMeasure] = {}
        for name in wanted:
            if (kind := BARE.get(name)) is not None:
                program = bare(plan.cores, kind)
            else:
                config = configuration(answer_ms=LONG_ANSWER_MS, is_deaf=name == "deaf")
                program = earshot(plan.cores, config)
            server = await stack.enter_async_context(program)
            _log(f"{name}: process {server.pid}")
            measures[name] = partial(webrtc_load.run, server, audio, plan.seconds)
        return _report(await _rounds(plan, measures, calls))


async def websocket(plan: CapacityPlan, sockets: Sequence[int]) -> str:
    """Measures sessions over WebSocket and returns the table. Raises EarshotError."""
    wanted = _wanted(plan, WEBSOCKET_SYSTEMS)
    audio = appends()
    behaviours = {"echo": ECHO, "vad": WITH_SERVER_VAD}
    async with AsyncExitStack() as stack:
        measures: dict[str, CapacityMeasure] = {}
        for name in wanted:
            if (kind := BARE.get(name)) is not None:
                program = bare(plan.cores, kind)
            else:
                config = configuration(answer_ms=ANSWER_S * 1000, is_deaf=name == "deaf")
                program = earshot(plan.cores, config)
            server = await stack.enter_async_context(program)
            _log(f"{name}: process {server.pid}")
            behaviour = behaviours.get(name, WITHOUT_VAD)
            measures[name] = partial(websocket_load.run, server, behaviour, audio, plan.seconds)
        return _report(await _rounds(plan, measures, sockets))


async def _rounds(
    plan: CapacityPlan, measures: Mapping[str, CapacityMeasure], numbers: Sequence[int]
) -> dict[str, dict[int, list[CapacityRun]]]:
    found = {name: {number: list[CapacityRun]() for number in numbers} for name in measures}
    names = list(measures)
    for turn in range(plan.rounds):
        for number in numbers:
            first = turn % len(names)
            for name in (*names[first:], *names[:first]):
                try:
                    run = await measures[name](number)
                except CannotConnect as error:
                    # the machine is too busy; the other systems are still measured
                    _log(f"round {turn + 1}: {name}, {number}: not measured: {error}")
                    continue
                found[name][number].append(run)
                _log(f"round {turn + 1}: {name}, {number}: {run.cpu_percent:.2f} %")
    if not all(any(by_number.values()) for by_number in found.values()):
        raise SystemMeasurementError("a system could not be measured at all")
    return found


def _report(found: dict[str, dict[int, list[CapacityRun]]]) -> str:
    return f"{table(found, next(iter(found)))}\n\n{extrapolated(found)}"


def _wanted(plan: CapacityPlan, known: Sequence[str]) -> list[str]:
    if plan.systems is None:
        return list(known)
    if unknown := set(plan.systems) - {*WEBRTC_SYSTEMS, *WEBSOCKET_SYSTEMS}:
        known = sorted({*WEBRTC_SYSTEMS, *WEBSOCKET_SYSTEMS})
        raise RequestError(f"--systems {','.join(sorted(unknown))}: there are {', '.join(known)}")
    if absent := [name for name in plan.systems if name not in known]:
        _log(f"{', '.join(absent)}: not over this transport; there are {', '.join(known)}")
    return [name for name in known if name in plan.systems]


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
