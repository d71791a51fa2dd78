"""Tables of a simulation, in Markdown, and the same values for JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from bench.simulate.autoscaling import Autoscaler, crowd, daily_load, scale
from bench.simulate.cell import CellLoad, CellResult, run_cell
from bench.simulate.costs import TurnCosts
from bench.simulate.placements import (
    CALL_S_PER_TURN,
    DEMANDS,
    PLACEMENTS,
    TARGET_P95_MS,
    Capacity,
    Placement,
    find_capacity,
    fleet,
)
from bench.tools.stats import markdown

FACTORS = (0.5, 1.0, 2.0)
"Factors on the time of all models, for the table of sensitivity."

LOADS = (0.5, 0.8, 1.0, 1.2, 1.5)
"Loads of one cell, as multiples of its capacity."

LOAD_S = 15.0
"Simulated seconds of each of these loads; a lost recogniser is away for the second third."

DELAYS_S = (0, 30, 60, 120, 300, 600)
"Delays of autoscaling."

REPLICA_SHARE = 0.02
"Part of the daily peak that one replica carries: a step of the autoscaler."

BURST = 3.0
BURST_S = 60
"A sudden crowd: so many times the load, within so many seconds."

LOADED = ("gateways", "recognition", "language model", "voice")
"""Parts whose load is shown. That of recognition contains partials, which take what is left."""

Row = list[str]


@dataclass(frozen=True, slots=True)
class Table:
    """One table with its title."""

    title: str
    head: Row
    rows: list[Row]

    def markdown(self) -> str:
        """Returns title and table."""
        return f"**{self.title}**\n\n{markdown(self.head, self.rows)}"

    def json(self) -> dict[str, object]:
        """Returns the cells."""
        return asdict(self)


def capacity_table(found: Sequence[Capacity]) -> Table:
    """Returns what one cell of each placement carries."""
    head = ["placement", "GPUs of a cell", "turns/s", "p50", "p95 (each seed)", "p99 ms"]
    rows = []
    for capacity in found:
        low_ms, high_ms = capacity.p95_range_ms
        result = capacity.result
        rows.append(
            [
                capacity.placement.name,
                _gpus(capacity.placement),
                f"{capacity.turns_per_s:.0f}",
                f"{result.percentile_ms(50):.0f}",
                f"{result.percentile_ms(95):.0f} ({low_ms:.0f} to {high_ms:.0f})",
                f"{result.percentile_ms(99):.0f}",
                f"{100 * result.lost_share:.2f} %",
                *_loads(capacity.result),
            ]
        )
    title = f"Capacity of a cell: p95 at most {TARGET_P95_MS:.0f} ms"
    return Table(title, [*head, "lost", *LOADED], rows)


def fleet_table(found: Sequence[Capacity]) -> Table:
    """Returns what each demand needs in each placement."""
    rows = []
    for demand in DEMANDS:
        for capacity in found:
            needed = fleet(capacity, demand)
            rows.append(
                [
                    demand.name,
                    capacity.placement.name,
                    f"{demand.peak_per_s(capacity.placement):.0f}",
                    str(needed.gateway_cores),
                    str(needed.gpus),
                    f"{needed.dollars_per_1000:.3f}",
                ]
            )
    head = ["demand", "placement", "peak, turns/s", "gateways", "GPUs", "$ per 1000 turns"]
    return Table("What a whole service needs", head, rows)


def sensitivity_table(costs: TurnCosts, seeds: Sequence[int]) -> Table:
    """Returns the capacity of the first placement when all models are faster or slower."""
    rows = []
    for factor in FACTORS:
        try:
            found = find_capacity(PLACEMENTS[0], costs.scaled_models(factor), seeds[:1])
        except ValueError:
            rows.append([f"{factor:g}", "0: the target is missed at any load", "-", "-", "-"])
            continue
        shown = [f"{found.turns_per_s:.0f}", f"{found.result.percentile_ms(95):.0f}"]
        gpus = [str(fleet(found, demand).gpus) for demand in DEMANDS]
        rows.append([f"{factor:g}", *shown, "; ".join(_loads(found.result)), " and ".join(gpus)])
    head = ["time of all models, times", "turns/s of a cell", "p95 ms", "; ".join(LOADED)]
    return Table("Sensitivity to the assumed GPUs", [*head, "GPUs, both demands"], rows)


def cell_size_table(costs: TurnCosts, seeds: Sequence[int]) -> Table:
    """Returns the capacity for each GPU of cells of three sizes."""
    rows = []
    for size in (1, 2, 3):
        placement = Placement(f"{size}", size, 5 * size, 2 * size)
        found = find_capacity(placement, costs, seeds[:1])
        per_gpu = found.turns_per_s / found.plan.gpus
        rows.append([str(found.plan.gpus), f"{found.turns_per_s:.0f}", f"{per_gpu:.1f}"])
    head = ["GPUs of a cell", "turns/s", "turns/s for each GPU"]
    return Table("Does the size of the cell matter?", head, rows)


def load_table(capacity: Capacity, seed: int) -> Table:
    """Returns a cell below and above its capacity, and with a recogniser that is lost."""
    rows = []
    cases = [(factor, 0) for factor in LOADS] + [(0.4, 1), (0.8, 1)]
    for factor, lost in cases:
        turns_per_s = factor * capacity.turns_per_s
        calls = round(turns_per_s * CALL_S_PER_TURN)
        load = CellLoad(calls, turns_per_s, LOAD_S, lost_recognisers=lost, lost_s=LOAD_S / 3)
        plan, costs = capacity.plan, capacity.costs
        result = run_cell(plan, replace(costs, hop_ms=capacity.placement.hop_ms), load, seed)
        what = f"{factor:g} x"
        what += f", {lost} recogniser lost for {load.lost_s:.0f} s" if lost else ""
        rows.append(
            [
                what,
                *(f"{result.percentile_ms(percent):.0f}" for percent in (50, 95, 99)),
                f"{100 * result.lost_share:.2f} %",
                *_loads(result),
            ]
        )
    head = ["load", "p50", "p95", "p99 ms", "refused or failed", *LOADED]
    return Table(f"What breaks first: {capacity.placement.name}", head, rows)


def autoscaling_table() -> Table:
    """Returns what delays of autoscaling do on a usual day, and to a sudden crowd."""
    demand = DEMANDS[0]
    day = [value for value in daily_load(demand.mean_per_s, demand.peak) for _ in range(60)]
    burst = crowd(demand.mean_per_s, BURST, BURST_S, 1800)
    per_replica = REPLICA_SHARE * demand.mean_per_s * demand.peak
    always = demand.mean_per_s * demand.peak * len(day)
    rows = []
    for delay_s in DELAYS_S:
        usual = scale(day, per_replica, Autoscaler(delay_s))
        sudden = scale(burst, per_replica, Autoscaler(delay_s))
        warm = scale(burst, per_replica, Autoscaler(delay_s, headroom=BURST))
        rows.append(
            [
                str(delay_s),
                f"{100 * usual.replica_s * per_replica / always:.0f} %",
                f"{100 * (usual.late + usual.refused) / usual.turns:.2f} %",
                f"{100 * sudden.late / sudden.turns:.0f} %",
                f"{100 * sudden.refused / sudden.turns:.0f} %",
                f"{sudden.longest_wait_s:.0f}",
                f"{100 * (warm.late + warm.refused) / warm.turns:.0f} %",
            ]
        )
    head = ["delay, s", "replicas paid, of the peak's", "usual day: late or refused"]
    head += ["crowd: late", "refused", "longest wait, s", "crowd, warm replicas for 3 x: either"]
    return Table("What the delay of autoscaling does", head, rows)


def tables(costs: TurnCosts, seeds: Sequence[int]) -> Iterator[Table]:
    """Yields all tables. The same arguments give the same tables."""
    yield autoscaling_table()
    found = [find_capacity(placement, costs, seeds) for placement in PLACEMENTS]
    yield capacity_table(found)
    yield fleet_table(found)
    yield load_table(found[1], seeds[0])
    yield sensitivity_table(costs, seeds)
    yield cell_size_table(costs, seeds)


def _loads(result: CellResult) -> Row:
    return [f"{100 * result.use[name]:.0f} %" for name in LOADED]


def _gpus(placement: Placement) -> str:
    parts = (placement.recognisers, placement.llm_gpus, placement.tts_gpus)
    return f"{sum(parts)}: {' + '.join(map(str, parts))}"
