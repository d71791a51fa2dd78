"""The recognition queue: priorities, batches, cancellation, errors, in virtual time."""

import asyncio

import pytest

from core.errors import EngineCrashed, SupersededError
from engines.base import AsrResult
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, LoopClock
from tests.serving.scheduling.fakes import (
    CALL_S,
    AsrScheduler,
    Worker,
    fixed,
    item,
    linear,
    outcomes,
    scheduled,
    settle,
)

pytestmark = pytest.mark.many

FINAL, SPECULATIVE, PARTIAL, BATCH = DecodePriority


def test_urgent_requests_go_first_and_uploads_never_share_their_calls() -> None:
    worker = Worker(max_batch=4)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        first = tasks.create_task(scheduler.submit(item("lone"), BATCH))
        await settle()
        assert worker.batches == [["lone"]]  # not delayed to fill a batch
        names = {"batch": BATCH, "partial": PARTIAL, "final": FINAL, "speculative": SPECULATIVE}
        rest = [scheduler.submit(item(name), priority) for name, priority in names.items()]
        results = await asyncio.gather(first, *rest)
        assert [result.text for result in results] == ["lone", *names]

    scheduled(worker, scenario)
    assert worker.batches == [["lone"], ["final", "speculative", "partial"], ["batch"]]


def test_a_final_waits_at_most_about_one_item_of_an_upload() -> None:
    worker = Worker(max_batch=8, cost_s=linear)
    waits_s: list[float] = []

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        uploads = tasks.create_task(
            outcomes([scheduler.submit(item(f"part {n}"), BATCH) for n in range(40)])
        )
        await asyncio.sleep(10 * CALL_S)  # so that costs have been measured
        for n in range(20):
            await asyncio.sleep(0.73 * CALL_S)
            began = loop.time()
            await scheduler.submit(item(f"final {n}"), FINAL)
            waits_s.append(loop.time() - began - CALL_S)
        assert all(isinstance(result, AsrResult) for result in await uploads)

    scheduled(worker, scenario)
    assert max(waits_s) <= CALL_S + 1e-6
    assert max(map(len, worker.batches[2:])) == 1


def test_uploads_fill_calls_of_fixed_cost() -> None:
    worker = Worker(max_batch=8, cost_s=fixed)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await outcomes([scheduler.submit(item(str(n)), BATCH) for n in range(35)])

    scheduled(worker, scenario)
    assert [len(batch) for batch in worker.batches] == [1, 2, 8, 8, 8, 8]  # the first two measure


def test_live_requests_are_not_batched_if_every_item_costs_the_same() -> None:
    worker = Worker(max_batch=8, cost_s=linear)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        for burst in range(3):
            await outcomes([scheduler.submit(item(f"{burst}.{n}"), FINAL) for n in range(8)])

    scheduled(worker, scenario)
    sizes = [len(batch) for batch in worker.batches]
    assert sizes[:2] == [1, 7]  # which measures the cost of a lone and of a further item
    assert set(sizes[2:]) == {1}


def test_batching_that_was_expensive_is_tried_again() -> None:
    worker = Worker(max_batch=8, cost_s=linear)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await outcomes([scheduler.submit(item(f"dear {n}"), BATCH) for n in range(8)])
        worker.cost_s = fixed  # another program has stopped using the machine
        await outcomes([scheduler.submit(item(f"cheap {n}"), BATCH) for n in range(200)])

    scheduled(worker, scenario)
    sizes = [len(batch) for batch in worker.batches]
    assert sizes[2:40] == [1] * 38
    assert sizes[-5:-1] == [8] * 4


def test_cancelling_frees_the_place_in_the_queue() -> None:
    worker = Worker(max_batch=1)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        running = tasks.create_task(scheduler.submit(item("running"), FINAL))
        await settle()
        waiting = tasks.create_task(scheduler.submit(item("cancelled"), FINAL))
        await settle()
        assert scheduler.waiting == 1
        waiting.cancel()
        await asyncio.wait([waiting])
        assert scheduler.waiting == 0
        await running
        assert (await scheduler.submit(item("next"), FINAL)).text == "next"

    scheduled(worker, scenario)
    assert worker.batches == [["running"], ["next"]]


@pytest.mark.parametrize(("goes_on", "forgotten"), [(False, ["spoken"]), (True, [])])
def test_state_of_a_cancelled_call_is_forgotten_unless_its_final_follows(
    goes_on: bool, forgotten: list[str]
) -> None:
    worker = Worker(is_incremental=True)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        partial = scheduler.submit(item("spoken", is_final=False), PARTIAL)
        running = tasks.create_task(partial)
        await settle()
        running.cancel()
        if goes_on:
            await scheduler.submit(item("spoken"), FINAL)
        await asyncio.sleep(CALL_S)
        assert scheduler.open_sequences == 0

    scheduled(worker, scenario)
    assert worker.forgotten == forgotten


def test_a_newer_request_of_an_utterance_replaces_an_older_one() -> None:
    worker = Worker(max_batch=1)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(scheduler.submit(item("running"), FINAL))
        await settle()
        spoken = item("spoken", is_final=False)
        calls = [
            scheduler.submit(spoken, PARTIAL),
            scheduler.submit(item("other", is_final=False), PARTIAL),
            scheduler.submit(spoken, PARTIAL),
        ]
        waiting = tasks.create_task(outcomes(calls))
        await settle()
        assert scheduler.waiting == 2
        speculative = tasks.create_task(outcomes([scheduler.submit(item("said"), SPECULATIVE)]))
        await settle()
        assert (await scheduler.submit(item("said"), FINAL)).text == "said"
        assert isinstance((await speculative)[0], SupersededError)
        first, other, last = await waiting
        assert isinstance(first, SupersededError)
        assert isinstance(other, AsrResult)
        assert isinstance(last, AsrResult)

    _, metrics = scheduled(worker, scenario)
    assert worker.batches == [["running"], ["said"], ["spoken"], ["other"]]  # it keeps its place
    assert metrics.counts["earshot_asr_superseded"] == 2


def test_less_urgent_and_final_requests_replace_nothing() -> None:
    worker = Worker(max_batch=1)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(scheduler.submit(item("running"), FINAL))
        await settle()
        order = (FINAL, FINAL, SPECULATIVE, PARTIAL, BATCH, BATCH)
        ends = await outcomes([scheduler.submit(item("same"), priority) for priority in order])
        assert all(isinstance(end, AsrResult) for end in ends)

    scheduled(worker, scenario)


def test_a_crash_fails_only_its_batch() -> None:
    worker = Worker(max_batch=2)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await scheduler.submit(item("measured"), FINAL)
        worker.crashes = 1
        results = await outcomes([scheduler.submit(item(name), FINAL) for name in "abc"])
        assert [type(r) for r in results] == [EngineCrashed, EngineCrashed, AsrResult]
        worker.crashes = 1
        await outcomes([scheduler.submit(item("spoken", is_final=False), PARTIAL)])
        assert scheduler.open_sequences == 0  # its state is gone

    _, metrics = scheduled(worker, scenario)
    assert metrics.counts["earshot_errors"] == 2


def test_a_model_that_cannot_load_ends_the_scheduler_with_the_reason() -> None:
    async def main() -> None:
        scheduler = AsrScheduler([Worker(missing=True)], ASR_SCHEDULING, LoopClock(), Counts())
        with pytest.raises(ExceptionGroup) as caught:
            await scheduler.run()
        assert "no weights" in str(caught.value.exceptions[0])

    run_virtual(main())


def test_unloading_ends_every_request() -> None:
    worker = Worker(max_batch=1)

    async def main() -> None:
        scheduler = AsrScheduler([worker], ASR_SCHEDULING, LoopClock(), Counts())
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(scheduler.run())
            await scheduler.ready()
            calls = [scheduler.submit(item(name), FINAL) for name in "ab"]
            waiting = tasks.create_task(outcomes(calls))
            await settle()
            serving.cancel()
            ends = await waiting
        ends += await outcomes([scheduler.submit(item("c"), FINAL)])
        assert [type(end) for end in ends] == [EngineCrashed] * 3

    assert run_virtual(main()) < CALL_S
