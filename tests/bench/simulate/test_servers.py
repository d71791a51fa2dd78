"""The simulated servers against formulas of queueing theory."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from bench.simulate.servers import LanePool, SharedProcessor, SimulatedServer
from bench.tools.virtual_time import run_virtual

ARRIVALS = 20_000


def mean_s(
    make: Callable[[], SimulatedServer], per_s: float, work_s: Callable[[Random], float]
) -> float:
    """Returns the mean time in the system of work that arrives at random times."""
    random, took_s = Random(1), list[float]()

    async def one(server: SimulatedServer, seconds: float) -> None:
        began_s = asyncio.get_running_loop().time()
        await server.work(seconds)
        took_s.append(asyncio.get_running_loop().time() - began_s)

    async def run() -> None:
        server = make()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(ARRIVALS):
                await asyncio.sleep(random.expovariate(per_s))
                tasks.create_task(one(server, work_s(random)))

    run_virtual(run())
    return sum(took_s) / len(took_s)


def test_one_lane_is_an_m_m_1_queue() -> None:
    # Mean time in the system: 1 / (mu - lambda)
    found = mean_s(lambda: LanePool(1), 0.7, lambda random: random.expovariate(1.0))
    assert found == pytest.approx(1 / (1 - 0.7), rel=0.1)


def test_fixed_work_is_an_m_d_1_queue() -> None:
    # Pollaczek-Khinchine: 1 + rho / (2 * (1 - rho)) times the work
    found = mean_s(lambda: LanePool(1), 0.7, lambda _: 1.0)
    assert found == pytest.approx(1 + 0.7 / (2 * 0.3), rel=0.05)


def test_fixed_work_on_three_lanes_is_an_m_d_c_queue() -> None:
    # Half of the wait of M/M/3 (Erlang C = 0.5470 at 2.1 erlang), within some percent
    found = mean_s(lambda: LanePool(3), 2.1, lambda _: 1.0)
    wait_s = 0.5470 / (3 - 2.1) / 2
    assert found == pytest.approx(1 + wait_s, rel=0.05)


@pytest.mark.parametrize("spread", ["fixed", "exponential"])
def test_a_shared_core_depends_only_on_the_mean_of_the_work(spread: str) -> None:
    # M/G/1 processor sharing: mean / (1 - rho), for any distribution
    def work_s(random: Random) -> float:
        return 1.0 if spread == "fixed" else random.expovariate(1.0)

    found = mean_s(lambda: SharedProcessor(1), 0.6, work_s)
    assert found == pytest.approx(1 / (1 - 0.6), rel=0.1)


def test_open_calls_take_their_part_of_the_cores() -> None:
    async def run() -> None:
        processor = SharedProcessor(cores=2, calls_load=1.5)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(processor.work(1))
        assert asyncio.get_running_loop().time() == pytest.approx(4)
        assert processor.busy_s == pytest.approx(2)

    run_virtual(run())
