"""Effect of the delay with which autoscaling adds machines: turns as a fluid, second by second.
Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, cos, exp, pi

WAIT_LIMIT_S = 15.0
"Expected wait above which the product refuses a final recognition (`ASR_SCHEDULING`)."

LATE_S = 1.0
"Wait that a speaker notices."

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """How the number of replicas follows the load."""

    delay_s: int
    "From the decision to a replica that serves: machine, model, warm-up."
    headroom: float = 1.3
    "Capacity that is aimed at, as a multiple of the load."
    every_s: int = 10
    "Seconds between decisions."
    down_after_s: int = 600
    "Seconds for which fewer replicas must have been enough before some are stopped."


@dataclass(frozen=True, slots=True)
class ScalingResult:
    """A stretch of time with an autoscaler, in turns."""

    turns: float
    refused: float
    late: float
    "Turns that were answered after a wait above LATE_S."
    replica_s: float
    "Replica seconds that were paid."
    longest_wait_s: float


def daily_load(mean_per_s: float, peak: float) -> list[float]:
    """Returns a day's load by the minute, turns a second: an evening peak of `peak` times the mean
    over a low wave. The mean over the day is `mean_per_s`."""
    minutes = range(1440)
    wave = [0.6 - 0.4 * cos(2 * pi * minute / 1440) for minute in minutes]
    bump = [exp(-(((minute - 1140) / 75) ** 2)) for minute in minutes]
    # The height of the peak above the wave, so that the highest minute is `peak` times the mean.
    low, high = 0.0, 100.0 * peak
    for _ in range(60):
        height = (low + high) / 2
        shape = [base + height * part for base, part in zip(wave, bump, strict=True)]
        low, high = (height, high) if max(shape) < peak * sum(shape) / 1440 else (low, height)
    shape = [base + low * part for base, part in zip(wave, bump, strict=True)]
    factor = mean_per_s * 1440 / sum(shape)
    return [factor * value for value in shape]


def crowd(base_per_s: float, times: float, rise_s: int, seconds: int) -> list[float]:
    """Returns a load by the second that rises to `times` its base within `rise_s`, after 60 s."""
    rises = (min(1.0, max(0.0, (second - 60) / rise_s)) for second in range(seconds))
    return [base_per_s * (1 + (times - 1) * rise) for rise in rises]


def scale(load: Sequence[float], per_replica: float, scaler: Autoscaler) -> ScalingResult:
    """Follows a load by the second. `per_replica`: turns a second of one replica.

    It begins with the replicas that the first second needs. Turns above the capacity wait, and
    those that would wait longer than WAIT_LIMIT_S are refused.
    """
    wanted = ceil(load[0] * scaler.headroom / per_replica)
    ready, starting = wanted, list[tuple[int, int]]()  # (second of readiness, replicas)
    waiting = refused = late = paid_s = longest_s = 0.0
    last_needed_s = 0
    for second, arrivals in enumerate(load):
        ready += sum(count for at, count in starting if at <= second)
        starting = [(at, count) for at, count in starting if at > second]
        if second % scaler.every_s == 0:
            wanted = max(1, ceil(arrivals * scaler.headroom / per_replica))
            coming = ready + sum(count for _, count in starting)
            if wanted >= coming:
                last_needed_s = second
            if wanted > coming:
                starting.append((second + scaler.delay_s, wanted - coming))
            elif second - last_needed_s >= scaler.down_after_s and wanted < ready:
                ready, last_needed_s = wanted, second
        capacity = ready * per_replica
        limit = capacity * WAIT_LIMIT_S
        waiting += arrivals
        served = min(waiting, capacity)
        waiting -= served
        over = max(0.0, waiting - limit)
        refused, waiting = refused + over, waiting - over
        wait_s = waiting / capacity
        longest_s = max(longest_s, wait_s)
        late += served if wait_s > LATE_S else 0.0
        paid_s += ready + sum(count for _, count in starting)
    return ScalingResult(sum(load), refused, late, paid_s, longest_s)
