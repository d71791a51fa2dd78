"""Numbers of a measurement as people read them."""

import os
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np


def machine() -> str:
    """What measured, and how busy it was with other things: a figure without it says little."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before"


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between ranks. Raises ValueError without values."""
    if not values:
        raise ValueError("a percentile of nothing")
    return float(np.percentile(values, percent))


def spread(values: Sequence[float]) -> list[str]:
    """p50, p95, least, most and how many, for a row of a table."""
    if not values:
        return ["-", "-", "-", "-", "0"]
    numbers = (percentile(values, 50), percentile(values, 95), min(values), max(values))
    return [*(f"{number:.0f}" for number in numbers), str(len(values))]


def median_and_range(values: Sequence[float], digits: int = 0) -> str:
    """`12 (10 to 15)`."""
    if not values:
        return "-"
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
