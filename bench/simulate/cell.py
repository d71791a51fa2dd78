"""Runs one cell: callers, turns and faults in virtual time, and their percentiles."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bench.simulate.costs import TurnCosts
from bench.simulate.site import Site, SitePlan, open_site
from bench.simulate.turn import SimulatedTurn, run_turn
from bench.talk.command import GAP_S
from bench.tools.stats import percentile
from bench.tools.virtual_time import VirtualClockLoop

WARM_UP_S = 5.0
"Time whose turns do not count: the scheduler learns the costs, and queues fill."


@dataclass(frozen=True, slots=True)
class CellLoad:
    """Load of a cell."""

    calls: int
    "Open calls."
    turns_per_s: float = 0.0
    """Turns that begin at random times (Poisson), as those of many callers do. 0: each call takes
    its turns one after the other, as the measuring clients do."""
    seconds: float = 60.0
    "Simulated time after the warm-up."
    lost_recognisers: int = 0
    "Recognisers that are lost after a third of the time."
    lost_s: float = 20.0
    "Time until they are back."


@dataclass(frozen=True, slots=True)
class CellResult:
    """Turns of a run, and how busy the servers were."""

    turns: Sequence[SimulatedTurn]
    "Every turn that began after the warm-up."
    begun: int
    "Number of turns that began after the warm-up, counted when they began."
    use: Mapping[str, float]

    @property
    def latencies_ms(self) -> list[float]:
        """Voice to voice of the answered turns."""
        return [turn.voice_to_voice_ms for turn in self.turns if turn.outcome == "answered"]

    @property
    def lost_share(self) -> float:
        """Part of the turns that were refused or failed, 0 to 1."""
        return 1 - len(self.latencies_ms) / max(1, len(self.turns))

    def percentile_ms(self, percent: float) -> float:
        """Returns a percentile of voice to voice; infinite without answers."""
        return percentile(self.latencies_ms, percent) if self.latencies_ms else float("inf")


def run_cell(plan: SitePlan, costs: TurnCosts, load: CellLoad, seed: int = 0) -> CellResult:
    """Simulates a cell in virtual time. The same arguments give the same result."""
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(_run(plan, costs, load, Random(seed)))


class _Recorder:
    """Turns that count."""

    def __init__(self) -> None:
        self.turns: list[SimulatedTurn] = []
        self.begun = 0

    async def turn(self, site: Site, number: int, gateway: int, random: Random) -> SimulatedTurn:
        counts = asyncio.get_running_loop().time() >= WARM_UP_S
        self.begun += counts
        turn = await run_turn(site, f"u{number}", gateway, random)
        if counts:
            self.turns.append(turn)
        return turn


async def _run(plan: SitePlan, costs: TurnCosts, load: CellLoad, random: Random) -> CellResult:
    recorder, end_s = _Recorder(), WARM_UP_S + load.seconds
    async with open_site(plan, costs, load.calls, random) as site, asyncio.TaskGroup() as tasks:
        if load.lost_recognisers:
            tasks.create_task(_lose(site, load))
        if load.turns_per_s:
            await _arrive(site, load, recorder, tasks, end_s)
        else:
            for call in range(load.calls):
                tasks.create_task(_call(site, call, load.calls, recorder, end_s))
            await asyncio.sleep(end_s)
        use = site.use(asyncio.get_running_loop().time())  # without the last turns' end
    return CellResult(recorder.turns, recorder.begun, use)


async def _arrive(
    site: Site, load: CellLoad, recorder: _Recorder, tasks: asyncio.TaskGroup, end_s: float
) -> None:
    """Begins turns at random times. The gateway with the next call is the next one in order."""
    loop, number = asyncio.get_running_loop(), 0
    while loop.time() < end_s:
        await asyncio.sleep(site.random.expovariate(load.turns_per_s))
        number += 1
        gateway = number % site.plan.gateways
        tasks.create_task(recorder.turn(site, number, gateway, site.random))


async def _call(site: Site, call: int, calls: int, recorder: _Recorder, end_s: float) -> None:
    """Takes the turns of one call. Calls begin evenly spread over one utterance, as those of
    `bench voice`."""
    loop, turn = asyncio.get_running_loop(), 0
    random = Random(f"{call} {site.random.random()}")
    await asyncio.sleep(site.costs.speech_s * call / calls)
    while loop.time() < end_s:
        number = call + turn * calls
        result = await recorder.turn(site, number, call % site.plan.gateways, random)
        await asyncio.sleep(result.answer_s + GAP_S)
        turn += 1


async def _lose(site: Site, load: CellLoad) -> None:
    """Loses recognisers for a while."""
    await asyncio.sleep(WARM_UP_S + load.seconds / 3)
    lost = site.recognisers[: load.lost_recognisers]
    for worker in lost:
        worker.lose()
    await asyncio.sleep(load.lost_s)
    for worker in lost:
        worker.restore()
