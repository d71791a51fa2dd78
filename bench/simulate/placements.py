"""Three placements of gateways and models, how much a cell of each carries, and what that costs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from bench.simulate.autoscaling import daily_load
from bench.simulate.cell import CellLoad, CellResult, run_cell
from bench.simulate.costs import TurnCosts
from bench.simulate.site import SitePlan

TARGET_P95_MS = 800.0
"Largest p95 of voice to voice of a cell at its capacity."

MAX_LOST = 0.001
"Largest part of the turns that may be refused or fail at the capacity."

GATEWAY_LOAD = 0.6
"Part of its core that a gateway needs for open calls at the capacity; turns come on top."

MAX_USE = 0.85
"""Largest load of the language model and the voice at the capacity. Above it queues grow slowly, so
that short runs do not show it."""

SEARCH_STEPS = 4
"Halvings of the range in which a smaller capacity is searched: 1/16 of it."

SEARCH_S = 5.0
FINAL_S = 10.0
"Simulated seconds of a step of the search, and of each run at the capacity found."

CALL_S_PER_TURN = 10.0
"Seconds of an open call for each turn, while the capacity is searched."

CORE_PRICE = 0.04
"Price of a core for an hour, in dollars: an assumption, about that of rented servers."

GPU_PRICE = 2.5
"Price of a GPU (H100) for an hour, in dollars: an assumption."


@dataclass(frozen=True, slots=True)
class Placement:
    """Where gateways and models are. The GPUs are those of one cell."""

    name: str
    recognisers: int
    llm_gpus: int
    tts_gpus: int
    hop_ms: float = 0.0
    "A call of a pool, there and back."
    is_global: bool = False
    "True: one pool serves regions whose evenings are at different hours."

    def plan(self, calls: float, costs: TurnCosts) -> SitePlan:
        """Returns a cell with as many gateways as the open calls need."""
        return SitePlan(gateway_cores(calls, costs), self.recognisers, self.llm_gpus, self.tts_gpus)


PLACEMENTS = (
    Placement("machines of 8 GPUs that do everything", 1, 5, 2),
    Placement("gateways apart from a pool in their region, by Ray", 2, 10, 4, 1.4),
    Placement("gateways in three regions, one pool for all", 2, 10, 4, 81.4, is_global=True),
)
"""The Ray hop is 1.4 ms (measured on two cores, throughput mode); 80 ms is the way to another
continent and back, an assumption. A cell of a pool has 16 GPUs."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Load of a whole service."""

    name: str
    calls: float
    "Open calls at the peak."
    mean_per_s: float
    "Turns a second, mean over the day."
    peak: float
    "Turns a second at the peak, as a multiple of the mean."

    def peak_per_s(self, placement: Placement) -> float:
        """Returns the turns a second for which the models of a placement must be enough."""
        if self.peak == 1 or not placement.is_global:
            return self.mean_per_s * self.peak
        region = daily_load(self.mean_per_s / REGIONS, self.peak)
        shift = len(region) // REGIONS
        hours = range(len(region))
        return max(
            sum(region[(minute + shift * zone) % len(region)] for zone in range(REGIONS))
            for minute in hours
        )


REGIONS = 3
"Regions, with evenings eight hours apart."

DEMANDS = (
    Demand("1 000 000 homes, 20 commands a day, peak 5 x", 9259, 231.5, 5),
    Demand("100 000 calls, a turn every 10 s", 100_000, 10_000, 1),
)
"""20 million commands a day are 231 a second, and 1157 at the peak; each holds a call open for 8 s:
wake word, order, answer, and the wait for another order."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most turns that a cell can answer in time."""

    placement: Placement
    costs: TurnCosts
    turns_per_s: float
    plan: SitePlan
    result: CellResult
    "Runs with several seeds together, at the capacity."
    p95_range_ms: tuple[float, float]
    "Smallest and largest p95 of these runs."


@dataclass(frozen=True, slots=True)
class Fleet:
    """Machines and money that a whole demand needs."""

    cells: int
    gateway_cores: int
    gpus: int
    dollars_per_1000: float
    "Price of 1000 turns, if all of it runs all day."


def gateway_cores(calls: float, costs: TurnCosts) -> int:
    """Returns the gateways, of one core each, that so many open calls need."""
    return max(1, ceil(calls * costs.call_ms_per_s / 1000 / GATEWAY_LOAD))


def fleet(capacity: Capacity, demand: Demand) -> Fleet:
    """Returns the cells that a demand needs at its peak."""
    cells = ceil(demand.peak_per_s(capacity.placement) / capacity.turns_per_s)
    cores, gpus = gateway_cores(demand.calls, capacity.costs), cells * capacity.plan.gpus
    dollars_per_hour = cores * CORE_PRICE + gpus * GPU_PRICE
    return Fleet(cells, cores, gpus, 1000 * dollars_per_hour / (3600 * demand.mean_per_s))


def is_good(result: CellResult) -> bool:
    """True if a run is within the target."""
    return result.percentile_ms(95) <= TARGET_P95_MS and result.lost_share <= MAX_LOST


def find_capacity(placement: Placement, costs: TurnCosts, seeds: Sequence[int]) -> Capacity:
    """Returns the most turns a second with which a cell is within the target. Raises ValueError if
    even a nearly idle cell is not."""
    costs = replace(costs, hop_ms=placement.hop_ms)

    def run(turns_per_s: float, seconds: float, seed: int) -> CellResult:
        calls = round(turns_per_s * CALL_S_PER_TURN)
        load = CellLoad(calls, turns_per_s, seconds)
        return run_cell(placement.plan(calls, costs), costs, load, seed)

    low, high, middle = 0.0, _upper_bound(placement, costs), _upper_bound(placement, costs)
    for _ in range(1 + SEARCH_STEPS):
        if is_good(run(middle, SEARCH_S, seeds[0])):
            low = middle
        else:
            high = middle
        if low == high:
            break
        middle = (low + high) / 2
    if not low:
        raise ValueError(f"{placement.name}: the target is missed at any load")
    runs = [run(low, FINAL_S, seed) for seed in seeds]
    merged = CellResult(
        [turn for one in runs for turn in one.turns],
        sum(one.begun for one in runs),
        {name: sum(one.use[name] for one in runs) / len(runs) for name in runs[0].use},
    )
    p95s_ms = [one.percentile_ms(95) for one in runs]
    plan = placement.plan(low * CALL_S_PER_TURN, costs)
    return Capacity(placement, costs, low, plan, merged, (min(p95s_ms), max(p95s_ms)))


def _upper_bound(placement: Placement, costs: TurnCosts) -> float:
    """Returns the turns a second at which the first stage has a load of MAX_USE."""
    voice_s = (costs.tts_ms + costs.tts_rest_ms) / 1000
    bounds = [placement.tts_gpus * costs.tts_lanes / voice_s]
    if costs.llm_slots:
        growth = 1 + costs.llm_growth * MAX_USE
        write_s = growth * (costs.llm_first_ms + costs.llm_rest_ms) / 1000
        bounds.append(placement.llm_gpus * costs.llm_slots / write_s)
    lone_s = (costs.asr_fixed_ms + costs.asr_ms_per_s * costs.speech_s) / 1000
    full_s = lone_s * (1 + costs.asr_marginal * (costs.asr_max_batch - 1))
    bounds.append(placement.recognisers * costs.asr_max_batch / full_s)
    return MAX_USE * min(bounds)
