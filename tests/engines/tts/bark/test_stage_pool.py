"""A pool batches items, joins them between steps, spreads them over threads and frees slots."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from engines.base.voice import StageTime
from engines.tts.bark.stage_pool import StagePool
from tests.engines.tts.bark.fakes import PATIENCE_S, GatedWorker

Pool: TypeAlias = StagePool[list[int]]


def run(scenario: Callable[[Pool], Awaitable[None]], *workers: GatedWorker) -> list[StageTime]:
    """Runs a scenario, and returns the times of the items."""
    times: list[StageTime] = []

    async def main() -> None:
        pool: Pool = StagePool("coarse", workers, times.append)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(pool)
        finally:
            for worker in workers:
                worker.gate.release(100)
            await pool.aclose()

    asyncio.run(main())
    return times


def test_an_item_joins_a_running_batch() -> None:
    worker = GatedWorker()

    async def scenario(pool: Pool) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pool.run([3]))
            await worker.has_started()
            tasks.create_task(pool.run([1]))
            await asyncio.sleep(0)
            worker.gate.release(3)

    times = run(scenario, worker)
    assert worker.batches == [1, 2, 1]
    assert [time.batch for time in times] == [2, pytest.approx(4 / 3)]
    assert {time.stage for time in times} == {"coarse"}
    assert all(time.queue_s >= 0 and time.compute_s >= 0 for time in times)


def test_further_items_wait_for_a_slot_in_their_order() -> None:
    worker = GatedWorker(slots=1)
    ended: list[int] = []

    async def one(pool: Pool, number: int) -> None:
        await pool.run([1])
        ended.append(number)

    async def scenario(pool: Pool) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(one(pool, number))
            worker.gate.release(4)

    run(scenario, worker)
    assert ended == [0, 1, 2, 3]
    assert worker.batches == [1] * 4


def test_items_go_to_the_thread_with_the_fewest() -> None:
    workers = GatedWorker(), GatedWorker()

    async def scenario(pool: Pool) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(pool.run([1]))
            await asyncio.gather(*(worker.has_started() for worker in workers))
            for worker in workers:
                worker.gate.release(3)

    run(scenario, *workers)
    assert sum(sum(worker.batches) for worker in workers) == 3


def test_a_cancelled_item_frees_its_slot_before_the_next_step() -> None:
    worker = GatedWorker(slots=1)

    async def scenario(pool: Pool) -> None:
        async with asyncio.TaskGroup() as tasks:
            long = tasks.create_task(pool.run([1000]))
            await worker.has_started()
            waiting = tasks.create_task(pool.run([1]))
            dropped = tasks.create_task(pool.run([1]))
            await asyncio.sleep(0)
            dropped.cancel()  # it has no slot yet
            long.cancel()
            await asyncio.wait([long])
            worker.gate.release()  # the step that was in progress
            await worker.has_started()
            assert list(worker.running.values()) == [[1]]
            worker.gate.release()
            await waiting

    times = run(scenario, worker)
    assert worker.batches == [1, 1]
    assert len(times) == 1, "cancelled items have no times"


def test_a_failed_step_fails_its_batch_and_the_next_item_runs() -> None:
    worker = GatedWorker()
    worker.fails_next = True

    async def scenario(pool: Pool) -> None:
        worker.gate.release()
        with pytest.raises(RuntimeError, match="out of memory"):
            await pool.run([1])
        worker.gate.release()
        await pool.run([1])

    run(scenario, worker)
    assert worker.batches == [1]
    assert not worker.running
