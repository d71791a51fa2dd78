"""Measures 1 to 40 callers on this machine, and simulates the same from the costs of one."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.simulate.cell import CellLoad, CellResult, run_cell
from bench.simulate.costs import TurnCosts
from bench.simulate.measure import REQUEST, TIMEOUT_S, measured_server
from bench.simulate.site import SitePlan
from bench.tools.stats import markdown, percentile
from bench.tools.utterance_audio import BenchUtterance
from bench.voice import measure
from bench.voice.measure import VoicePlan
from bench.voice.summary import answered_reports, count_early_answers, voice_to_voice

ALLOWED_ERROR = 0.2
"Largest error of the simulated p95, as a part of the measured one."

SIMULATED_S = 120.0


@dataclass(frozen=True, slots=True)
class ComparedLoad:
    """The same number of callers, measured and simulated."""

    callers: int
    measured_ms: Sequence[float]
    turns: int
    lost: int
    "Measured turns that were not answered."
    early: int
    "Measured turns that were answered before they were over; their times do not count."
    simulated: CellResult

    @property
    def error(self) -> float:
        """Error of the simulated p95, as a part of the measured one; infinite without answers."""
        if not self.measured_ms:
            return float("inf")
        return self.simulated.percentile_ms(95) / percentile(self.measured_ms, 95) - 1


def simulate_callers(costs: TurnCosts, callers: int, cores: int) -> CellResult:
    """Simulates callers who share `cores` with the server, each turn after the one before."""
    plan = SitePlan(gateways=1, recognisers=2, shared_cores=cores)
    return run_cell(plan, costs, CellLoad(callers, seconds=SIMULATED_S))


async def compare(
    model: Path,
    clips: Sequence[BenchUtterance],
    costs: TurnCosts,
    callers: Sequence[int],
    turns: int,
    cores: int,
) -> list[ComparedLoad]:
    """Measures each number of callers, with `turns` of all together, at least two of each."""
    compared: list[ComparedLoad] = []
    async with measured_server(model, max(callers) + 1) as server:
        for count in callers:
            each = max(2, round(turns / count))
            plan = VoicePlan(
                server.address, "ws", REQUEST, each, clients=count, timeout_s=TIMEOUT_S
            )
            found = await measure.run(plan, clips, lambda _: None)
            lost = len(found) - len(answered_reports(found))
            compared.append(
                ComparedLoad(
                    count,
                    voice_to_voice(found),
                    len(found),
                    lost,
                    count_early_answers(found),
                    # In a thread, because it has an event loop of its own.
                    await asyncio.to_thread(simulate_callers, costs, count, cores),
                )
            )
    return compared


def table(compared: Sequence[ComparedLoad]) -> str:
    """Returns Markdown: measured and simulated side by side."""
    head = ["callers", "turns", "lost", "early", "p50 ms", "p95 ms", "simulated p50", "p95"]
    head += ["error of p95", "simulated lost", "busiest"]
    rows = []
    for load in compared:
        shown = [
            f"{percentile(load.measured_ms, percent):.0f}" if load.measured_ms else "-"
            for percent in (50, 95)
        ]
        simulated = load.simulated
        name, use = max(simulated.use.items(), key=lambda pair: pair[1])
        rows.append(
            [
                *(str(number) for number in (load.callers, load.turns, load.lost, load.early)),
                *shown,
                *(f"{simulated.percentile_ms(percent):.0f}" for percent in (50, 95)),
                f"{100 * load.error:+.0f} %",
                f"{100 * simulated.lost_share:.1f} %",
                f"{name} {100 * use:.0f} %",
            ]
        )
    return markdown(head, rows)
