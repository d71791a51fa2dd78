"""Several workers of one model: their share of requests, and the loss of a worker."""

import asyncio

from core.errors import EngineCrashed
from serving.asr.scheduling import DecodePriority
from serving.scheduling.affinity import MAX_SEQUENCES, WorkerAffinity
from tests.serving.scheduling.fakes import (
    CALL_S,
    AsrScheduler,
    Worker,
    item,
    linear,
    outcomes,
    scheduled,
    settle,
)

FINAL, PARTIAL, BATCH = DecodePriority.FINAL, DecodePriority.PARTIAL, DecodePriority.BATCH


def test_a_new_utterance_goes_to_the_least_busy_worker_and_stays_there() -> None:
    workers = [Worker(max_batch=1, is_incremental=True) for _ in range(2)]

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        long = tasks.create_task(scheduler.submit(item("long"), FINAL))
        await asyncio.sleep(0.01)
        for _ in range(3):  # partials of one utterance, during the long decode
            await scheduler.submit(item("spoken", is_final=False), PARTIAL)
        await long
        await scheduler.submit(item("spoken"), FINAL)
        scheduler.forget("spoken")
        await scheduler.submit(item("open", is_final=False), PARTIAL)
        scheduler.forget("open")
        scheduler.forget("open")
        assert scheduler.open_sequences == 0

    scheduled(workers, scenario)
    assert workers[0].batches[0] == ["long"]
    assert workers[1].batches == [["spoken"]] * 4
    assert workers[0].forgotten + workers[1].forgotten == ["open"]  # finals end their state


def test_utterances_spread_over_idle_workers() -> None:
    workers = [Worker(is_incremental=True) for _ in range(2)]

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        for name in "abcd":
            await scheduler.submit(item(name, is_final=False), PARTIAL)

    scheduled(workers, scenario)
    assert [len(worker.batches) for worker in workers] == [2, 2]


def test_a_burst_is_divided_between_workers() -> None:
    workers = [Worker(max_batch=8) for _ in range(2)]

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await scheduler.submit(item("measured"), FINAL)
        await asyncio.gather(*(scheduler.submit(item(str(n)), FINAL) for n in range(8)))

    seconds, _ = scheduled(workers, scenario)
    assert [list(map(len, worker.batches)) for worker in workers] == [[1, 4], [4]]
    assert seconds < 2.5 * CALL_S


def test_no_worker_is_idle_while_uploads_wait() -> None:
    workers = [Worker(max_batch=8, cost_s=linear) for _ in range(2)]

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await asyncio.gather(*(scheduler.submit(item(str(n)), BATCH) for n in range(20)))

    seconds, _ = scheduled(workers, scenario)
    assert seconds < 10.5 * CALL_S


def test_an_utterance_waits_for_its_worker_only_if_that_has_state() -> None:
    """If its worker is busy, an utterance of Whisper goes elsewhere; one of PocketSphinx waits."""
    for is_incremental, final_at in ((False, 1), (True, 0)):
        workers = [Worker(max_batch=1, is_incremental=is_incremental) for _ in range(2)]

        async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
            await scheduler.submit(item("spoken", is_final=False), PARTIAL)
            busy = tasks.create_task(scheduler.submit(item("spoken", is_final=False), PARTIAL))
            await asyncio.sleep(CALL_S / 2)
            await scheduler.submit(item("spoken"), FINAL)
            await busy
            assert scheduler.open_sequences == 0

        scheduled(workers, scenario)
        assert [len(worker.batches) for worker in workers] == [3 - final_at, final_at]
        assert workers[0].forgotten == ["spoken"] * final_at


def test_a_worker_that_is_down_gets_no_request() -> None:
    workers = [Worker(max_batch=1) for _ in range(2)]

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        workers[1].is_down = True
        await asyncio.gather(*(scheduler.submit(item(name), FINAL) for name in "ab"))

    scheduled(workers, scenario)
    assert workers[0].batches == [["a"], ["b"]]


def test_a_lost_worker_loses_its_call_and_its_utterances_move() -> None:
    workers = [Worker(max_batch=1, is_incremental=True) for _ in range(2)]

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await scheduler.submit(item("spoken", is_final=False), PARTIAL)
        workers[0].crashes = 1
        other = asyncio.gather(
            scheduler.submit(item("spoken", is_final=False), PARTIAL), return_exceptions=True
        )
        await asyncio.sleep(CALL_S / 2)
        final = tasks.create_task(scheduler.submit(item("spoken"), FINAL))
        await asyncio.sleep(CALL_S / 4)
        assert scheduler.waiting == 1
        workers[0].is_down = True
        await other
        assert (await final).text == "spoken"

    scheduled(workers, scenario)
    assert workers[1].batches == [["spoken"]]


def test_a_further_worker_that_does_not_load_is_left_out() -> None:
    workers = [Worker(), Worker(missing=True), Worker()]

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await asyncio.gather(*(scheduler.submit(item(name), FINAL) for name in "ab"))

    _, metrics = scheduled(workers, scenario)
    assert [len(worker.batches) for worker in workers] == [1, 0, 1]
    assert metrics.counts["earshot_errors"] == 1


def test_requests_fail_once_no_worker_loads_again() -> None:
    """They succeed as long as there is another worker."""
    workers = [Worker(), Worker()]

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await settle()
        workers[0].lost = asyncio.Event()
        served = tasks.create_task(scheduler.submit(item("served"), FINAL))
        await settle()
        workers[0].lost.set()
        assert (await served).text == "served"
        workers[1].lost = asyncio.Event()
        waits = tasks.create_task(outcomes([scheduler.submit(item("waits"), FINAL)]))
        await settle()
        assert scheduler.waiting == 1
        workers[1].lost.set()
        (outcome,) = await waits
        assert isinstance(outcome, EngineCrashed)

    seconds, _ = scheduled(workers, scenario)
    assert seconds < 2 * CALL_S


def test_the_affinity_is_bounded() -> None:
    affinity = WorkerAffinity()
    for n in range(MAX_SEQUENCES):
        assert affinity.assign(str(n), n % 2) == []
    affinity.assign("0", 1)
    assert affinity.assign("one more", 0) == [("1", 1)]  # the one unused for the longest time
    assert (len(affinity), affinity.worker_of("0"), affinity.worker_of("1")) == (
        MAX_SEQUENCES,
        1,
        None,
    )
    affinity.drop_worker(1)
    assert set(affinity.count_by_worker()) == {0}
