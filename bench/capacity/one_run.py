"""One measurement: what a server took while so many sessions were open."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from bench.measurements.resources import use_of

PROBE_S = 0.005

SETTLE_S = 2.0
"After the last session was opened: certificates, first answers, recognisers' first words."


@dataclass(frozen=True, slots=True)
class MeasurementWindow:
    """The seconds that count."""

    began: float
    "By perf_counter."
    wall_s: float
    cpu_s: float
    "Of the server's processes."
    waited_s: float
    "That the server's event loop wanted the core and others had it: much of it spoils times."
    lags_ms: Sequence[float]
    "How late this process, the load, was itself."


@dataclass(frozen=True, slots=True)
class CapacityRun:
    sessions: int
    window: MeasurementWindow
    heard_s: float
    "Audio that all clients got."
    errors_ms: Sequence[float] = ()
    "Of each packet's distance to the one before it."
    refusals: int = 0
    "Error events."

    @property
    def cpu_percent(self) -> float:
        """Of one core, for each session."""
        return 100 * self.window.cpu_s / self.window.wall_s / self.sessions

    @property
    def waited_percent(self) -> float:
        """Of the time."""
        return 100 * self.window.waited_s / self.window.wall_s

    @property
    def heard_percent(self) -> float:
        """Of real time."""
        return 100 * self.heard_s / self.window.wall_s / self.sessions


async def window(pid: int, seconds: float) -> MeasurementWindow:
    """Measure the server for so long."""
    began, lags_ms = perf_counter(), list[float]()
    cpu_s, waited_s = use_of(pid).cpu_s, _waited_s(pid)
    while perf_counter() - began < seconds:
        probed = perf_counter()
        await asyncio.sleep(PROBE_S)
        lags_ms.append(max(0.0, perf_counter() - probed - PROBE_S) * 1000)
    wall_s, waited_s = perf_counter() - began, _waited_s(pid) - waited_s
    return MeasurementWindow(began, wall_s, use_of(pid).cpu_s - cpu_s, waited_s, lags_ms)


def _waited_s(pid: int) -> float:
    """Of the process's first thread, as Linux counts it."""
    _, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(waited_ns) / 1e9
