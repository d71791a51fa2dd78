"""One measurement: resources that a server used for a number of open sessions."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from bench.measurements.resources import use_of

PROBE_S = 0.005
"Interval in which the lag of this process is probed."

SETTLE_S = 2.0
"Pause after the last session was opened, until connections and first responses are made."


@dataclass(frozen=True, slots=True)
class MeasurementWindow:
    """Measured interval."""

    began: float
    "Start, by perf_counter."
    wall_s: float
    cpu_s: float
    "Processor time of the server's processes."
    waited_s: float
    """Time in which the server's event loop wanted the core but another process had it. Much of it
    spoils the result."""
    lags_ms: Sequence[float]
    "Lags of this process, which makes the load."


@dataclass(frozen=True, slots=True)
class CapacityRun:
    """Result of one run."""

    sessions: int
    window: MeasurementWindow
    received_s: float
    "Seconds of audio that all clients received."
    errors_ms: Sequence[float] = ()
    "Errors of the intervals between packets, in ms."
    refusals: int = 0
    "Number of error events."

    @property
    def cpu_percent(self) -> float:
        """Processor use per session, in percent of one core."""
        return 100 * self.window.cpu_s / self.window.wall_s / self.sessions

    @property
    def waited_percent(self) -> float:
        """Share of the time in which the server waited for its core."""
        return 100 * self.window.waited_s / self.window.wall_s

    @property
    def received_percent(self) -> float:
        """Received audio in percent of real time."""
        return 100 * self.received_s / self.window.wall_s / self.sessions


async def window(pid: int, seconds: float) -> MeasurementWindow:
    """Measures the server with process id `pid` for this time."""
    began, lags_ms = perf_counter(), list[float]()
    cpu_s, waited_s = use_of(pid).cpu_s, _waited_s(pid)
    while perf_counter() - began < seconds:
        probed = perf_counter()
        await asyncio.sleep(PROBE_S)
        lags_ms.append(max(0.0, perf_counter() - probed - PROBE_S) * 1000)
    wall_s, waited_s = perf_counter() - began, _waited_s(pid) - waited_s
    return MeasurementWindow(began, wall_s, use_of(pid).cpu_s - cpu_s, waited_s, lags_ms)


def _waited_s(pid: int) -> float:
    """Returns how long the process's first thread waited for a core, as Linux counts it."""
    _, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(waited_ns) / 1e9
