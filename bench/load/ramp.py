"""A load that rises: requests at set times, whether or not earlier ones are answered."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from time import perf_counter

from bench.client.http import Address
from bench.load.bodies import LoadKind
from bench.load.clients import LoadAnswer, LoadPlan, open_session, send

MAX_RATES = 1000
"More steps are a mistake in the step's size."


def rates(first: float, last: float, step: float) -> tuple[float, ...]:
    """Returns the rates from `first` to at most `last`, in requests per second. Raises ValueError
    unless all three are above 0, and `last` is not below `first`."""
    if not (0 < first <= last and step > 0 and isfinite(last)):
        raise ValueError("all must be above 0, and TO not below FROM")
    count = int((last - first) / step + 1e-9) + 1
    if count > MAX_RATES:
        raise ValueError(f"these are {count} rates; {MAX_RATES} are allowed")
    return tuple(first + number * step for number in range(count))


@dataclass(frozen=True, slots=True)
class Ramp:
    """Rates of requests, one after the other."""

    rates_per_s: Sequence[float]
    hold_s: float
    "Time at each rate."

    def starts(self) -> list[tuple[float, float]]:
        """Returns the time of each request, in seconds after the start, and the rate it is of."""
        found: list[tuple[float, float]] = []
        for number, rate in enumerate(self.rates_per_s):
            count = max(1, round(rate * self.hold_s))
            found += [(number * self.hold_s + each / rate, rate) for each in range(count)]
        return found


@dataclass(frozen=True, slots=True)
class RampAnswer:
    """The answer to one request of a ramp."""

    rate_per_s: float
    "Rate at which requests were sent at that time."
    began_s: float
    "Time from the start of the ramp to the start of the request."
    answer: LoadAnswer


async def run_ramp(
    ramp: Ramp,
    address: Address,
    kind: LoadKind,
    timeout_s: float,
    on_answer: Callable[[], object] = lambda: None,
) -> list[RampAnswer]:
    """Sends all requests of the ramp, each over a connection of its own. Returns their answers in
    the order of the requests."""
    starts = ramp.starts()
    plan = LoadPlan(address, kind, len(starts), len(starts), timeout_s, is_kept=False)
    async with open_session(address, timeout_s, is_kept=False) as session:
        start_s = perf_counter()

        async def one(number: int, rate: float) -> RampAnswer:
            began_s = perf_counter() - start_s
            answer = await send(plan, session, kind.body(number))
            on_answer()
            return RampAnswer(rate, began_s, answer)

        tasks: list[asyncio.Task[RampAnswer]] = []
        async with asyncio.TaskGroup() as group:
            for number, (at_s, rate) in enumerate(starts):
                await asyncio.sleep(start_s + at_s - perf_counter())
                tasks.append(group.create_task(one(number, rate)))
    return [task.result() for task in tasks]
