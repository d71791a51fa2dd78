"""Operating points of turn detection as in livekit's eot-bench, and a curve in text. Pure.

Between two neighbouring settings the values are interpolated linearly.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

LATENCIES_MS = (300, 600)
CUT_SHARES = (0.05, 0.10)
"Budgets for which eot-bench states the other value."

WIDTH, HEIGHT = 64, 16
"Columns and lines of the curve."
MARKS = "ox+#"
"Marks of the series, in turn."


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """One setting: mean delay of true ends, and share of the pauses within a turn that were cut."""

    delay_ms: float
    cut_share: float


def frontier(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Returns the points that no other beats in both values, the fastest first."""
    best: list[OperatingPoint] = []
    for point in sorted(points, key=lambda point: (point.delay_ms, point.cut_share)):
        if not best or point.cut_share < best[-1].cut_share:
            best.append(point)
    return best


def cut_share_at(points: Sequence[OperatingPoint], delay_ms: float) -> float | None:
    """Returns the least share of cut pauses with this mean delay; None: every setting is slower."""
    best = frontier(points)
    if not best or best[0].delay_ms > delay_ms:
        return None
    for faster, slower in pairwise(best):
        if slower.delay_ms > delay_ms:
            part = (delay_ms - faster.delay_ms) / (slower.delay_ms - faster.delay_ms)
            return faster.cut_share + part * (slower.cut_share - faster.cut_share)
    return best[-1].cut_share


def delay_at(points: Sequence[OperatingPoint], cut_share: float) -> float | None:
    """Returns the least mean delay in ms with this share of cut pauses; None: every setting cuts
    more."""
    best = frontier(points)
    if not best or best[-1].cut_share > cut_share:
        return None
    for faster, slower in pairwise(best):
        if faster.cut_share > cut_share >= slower.cut_share:
            part = (faster.cut_share - cut_share) / (faster.cut_share - slower.cut_share)
            return faster.delay_ms + part * (slower.delay_ms - faster.delay_ms)
    return best[0].delay_ms


def budget_row(points: Sequence[OperatingPoint]) -> list[str]:
    """Returns the cells of a table: cuts at each delay, then delays at each share of cuts."""
    shares = [cut_share_at(points, delay_ms) for delay_ms in LATENCIES_MS]
    delays = [delay_at(points, share) for share in CUT_SHARES]
    return [
        *("-" if share is None else f"{100 * share:.1f} %" for share in shares),
        *("-" if delay is None else f"{delay:.0f} ms" for delay in delays),
    ]


def curve(series: Mapping[str, Sequence[OperatingPoint]]) -> Iterator[str]:
    """Yields the lines of a picture: cut pauses upwards, mean delay to the right; `*` where two
    series meet."""
    points = [point for line in series.values() for point in line]
    most_ms = max(point.delay_ms for point in points)
    most_cut = max(point.cut_share for point in points) or 1.0
    grid = [[" "] * (WIDTH + 1) for _ in range(HEIGHT + 1)]
    for mark, marked in zip(MARKS, series.values(), strict=False):
        for point in marked:
            column = round(WIDTH * point.delay_ms / most_ms)
            row = HEIGHT - round(HEIGHT * point.cut_share / most_cut)
            grid[row][column] = mark if grid[row][column] in (" ", mark) else "*"
    for number, line in enumerate(grid):
        share = most_cut * (HEIGHT - number) / HEIGHT
        label = f"{100 * share:4.0f} %" if number % 4 == 0 else " " * 6
        yield f"{label} |{''.join(line).rstrip()}"
    yield f"       +{'-' * WIDTH}"
    yield f"        0 ms{f'{most_ms:.0f} ms':>{WIDTH - 4}}"
    yield "        " + ", ".join(f"{m}: {name}" for m, name in zip(MARKS, series, strict=False))
