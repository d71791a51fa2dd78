"""Computes statistics of measured numbers, and formats them for people."""

import os
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np


def machine() -> str:
    """Describes the machine and its load before the measurement; figures mean little without it."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before"


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns a percentile, interpolated linearly between ranks. Raises ValueError without values.

    percent: 0 to 100.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    return float(np.percentile(values, percent))


def spread(values: Sequence[float]) -> list[str]:
    """Returns p50, p95, smallest, largest and count, for a row of a table."""
    if not values:
        return ["-", "-", "-", "-", "0"]
    numbers = (percentile(values, 50), percentile(values, 95), min(values), max(values))
    return [*(f"{number:.0f}" for number in numbers), str(len(values))]


def median_and_range(values: Sequence[float], digits: int = 0) -> str:
    """Returns `12 (10 to 15)`: median (smallest to largest)."""
    if not values:
        return "-"
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
