"""Admission of requests that wait for a recognition worker, and refusals, in virtual time."""

import asyncio

import pytest

from core.errors import EarshotError, EngineTimeout, OverloadedError
from engines.base import AsrResult
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.scheduling.policy import MAX_WAITING
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

pytestmark = pytest.mark.many

FINAL, SPECULATIVE, PARTIAL, BATCH = DecodePriority


@pytest.mark.parametrize(
    ("priority", "error"),
    [(FINAL, EngineTimeout), (BATCH, EngineTimeout), (SPECULATIVE, OverloadedError)],
)
def test_a_request_times_out_if_the_worker_does_not_come_back(
    priority: DecodePriority, error: type[EarshotError]
) -> None:
    worker = Worker()

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await settle()
        worker.is_down = True
        with pytest.raises(error, match="no worker began within"):
            await scheduler.submit(item("late"), priority)
        assert scheduler.waiting == 0

    seconds, metrics = scheduled(worker, scenario)
    assert seconds == pytest.approx(ASR_SCHEDULING.rules[priority].deadline_s, abs=0.01)
    assert metrics.counts["earshot_asr_expired"] == 1


def test_a_promoted_speculative_request_is_as_urgent_as_a_final() -> None:
    worker = Worker(max_batch=1)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        running = scheduler.submit(item("running"), FINAL)
        soon_s = CALL_S / 2  # the deadline of requests that may be dropped
        calls = [
            running,
            scheduler.submit(item("partial"), PARTIAL, deadline_s=soon_s),
            scheduler.submit(item("guess"), SPECULATIVE),
            scheduler.submit(item("said"), SPECULATIVE, deadline_s=soon_s),
        ]
        ends = tasks.create_task(outcomes(calls))
        await settle()
        for name in ("running", "partial", "said", "unknown"):
            scheduler.promote(name)
        kinds = [type(end) for end in await ends]
        assert kinds == [AsrResult, OverloadedError, AsrResult, AsrResult]

    scheduled(worker, scenario)
    assert worker.batches == [["running"], ["said"], ["guess"]]


def test_a_deadline_limits_the_time_until_a_worker_begins() -> None:
    worker = Worker(max_batch=1)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        begun = tasks.create_task(scheduler.submit(item("begun"), FINAL, deadline_s=CALL_S / 2))
        await settle()
        with pytest.raises(EngineTimeout):
            await scheduler.submit(item("late"), FINAL, deadline_s=CALL_S / 2)
        assert (await begun).text == "begun"
        await asyncio.sleep(CALL_S)

    scheduled(worker, scenario)
    assert worker.batches == [["begun"]]


def test_requests_are_refused_by_their_expected_wait() -> None:
    worker = Worker(max_batch=1, cost_s=linear)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await scheduler.submit(item("measured"), FINAL)
        waiting: list[asyncio.Task[list[AsrResult | BaseException]]] = []
        refused: list[tuple[DecodePriority, float]] = []
        for n in range(200):  # 20 s of work
            call = scheduler.submit(item(str(n)), FINAL)
            waiting.append(tasks.create_task(outcomes([call])))
            await asyncio.sleep(0)
            for priority in (PARTIAL, SPECULATIVE):
                if priority not in dict(refused):
                    try:
                        scheduler.admit(priority)
                    except OverloadedError:
                        refused.append((priority, scheduler.expected_wait_s(priority)))
        assert [priority for priority, _ in refused] == [PARTIAL, SPECULATIVE]  # in this order
        last = (await asyncio.gather(*waiting))[-1][0]
        assert isinstance(last, OverloadedError)
        assert last.code == "engine_busy"
        assert last.retry_after_s == 16  # 15.1 s of work, rounded up

    _, metrics = scheduled(worker, scenario)
    assert len(worker.batches) == pytest.approx(
        1 + ASR_SCHEDULING.rules[FINAL].wait_limit_s / CALL_S, abs=2
    )
    assert metrics.counts["earshot_asr_refused"] > 40


def test_the_expected_wait_counts_urgent_requests_and_the_running_call() -> None:
    workers = [Worker(max_batch=1), Worker(max_batch=1)]

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await scheduler.submit(item("measured"), FINAL)
        tasks.create_task(scheduler.submit(item("one"), FINAL))
        await asyncio.sleep(CALL_S / 4)
        assert scheduler.expected_wait_s(FINAL) == 0  # the other worker is free
        tasks.create_task(scheduler.submit(item("two"), FINAL))
        await asyncio.sleep(CALL_S / 4)
        assert scheduler.expected_wait_s(FINAL) == pytest.approx(CALL_S / 2)
        for n in range(4):
            tasks.create_task(scheduler.submit(item(f"upload {n}"), BATCH))
        await asyncio.sleep(0)
        assert scheduler.expected_wait_s(FINAL) == pytest.approx(CALL_S / 2)
        assert scheduler.expected_wait_s(BATCH) == pytest.approx(CALL_S / 2 + 4 * CALL_S / 2)
        await asyncio.sleep(3 * CALL_S)

    scheduled(workers, scenario)


def test_a_started_upload_is_not_refused_when_new_ones_are() -> None:
    worker = Worker(max_batch=1, cost_s=linear)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        scheduler.admit(BATCH)
        await scheduler.submit(item("measured"), BATCH)
        parts = int(0.6 * ASR_SCHEDULING.rules[BATCH].wait_limit_s / CALL_S)
        later = [scheduler.submit(item(str(n)), BATCH) for n in range(min(parts, MAX_WAITING))]
        tasks.create_task(outcomes(later))
        worker.cost_s = lambda count: 2 * CALL_S * count
        await asyncio.sleep(10)  # the machine got slower meanwhile
        with pytest.raises(OverloadedError):
            scheduler.admit(BATCH)
        assert (await scheduler.submit(item("begun"), BATCH)).text == "begun"

    scheduled(worker, scenario)


def test_a_full_queue_drops_a_partial_for_a_final() -> None:
    worker = Worker(max_batch=1)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        calls = [scheduler.submit(item(str(n)), PARTIAL) for n in range(MAX_WAITING + 1)]
        first = tasks.create_task(calls[0])
        await settle()
        rest = tasks.create_task(outcomes(calls[1:]))
        await settle()
        with pytest.raises(OverloadedError, match="limit 256"):
            await scheduler.submit(item("one too many"), PARTIAL)
        final = await scheduler.submit(item("final"), FINAL)
        assert (final.text, first.done()) == ("final", True)
        kinds = [type(outcome) for outcome in await rest]
        assert (kinds[0], kinds[-1]) == (AsrResult, OverloadedError)

    scheduled(worker, scenario)
    assert worker.batches[:2] == [["0"], ["final"]]


async def many(
    scheduler: AsrScheduler, priority: DecodePriority, seconds: float, every_s: float
) -> int:
    """Submits one request after the other at this interval; returns the number of refused ones."""
    refused = 0
    for number in range(round(seconds / every_s)):
        try:
            async with asyncio.timeout(every_s):
                await scheduler.submit(item(f"{priority.name}-{number}", is_final=False), priority)
                await asyncio.sleep(every_s)
        except TimeoutError:
            continue
        except OverloadedError:
            refused += 1
            await asyncio.sleep(every_s)
    return refused


def test_partials_of_all_sessions_leave_room_for_finals() -> None:
    """Alone they may take a third of the worker, and none of one that is busy with finals."""
    quiet, loud = Worker(max_batch=1), Worker(max_batch=1)

    async def alone(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        talkers = [many(scheduler, PARTIAL, 30, 0.25) for _ in range(4)]
        assert min(await asyncio.gather(*talkers)) > 0

    async def beside(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        finals = tasks.create_task(many(scheduler, FINAL, 60, CALL_S / 0.65))
        await asyncio.sleep(30)
        begun = len(loud.batches)
        refused = await many(scheduler, PARTIAL, 25, 0.5)
        assert not [name for [name] in loud.batches[begun:] if name.startswith("PARTIAL")]
        assert refused == 50
        assert await finals == 0

    seconds, metrics = scheduled(quiet, alone)
    assert len(quiet.batches) * CALL_S / seconds == pytest.approx(1 / 3, abs=0.08)
    assert metrics.counts["earshot_asr_refused"] > 0
    scheduled(loud, beside)


def test_partials_of_an_incremental_engine_are_not_rationed() -> None:
    worker = Worker(max_batch=1, is_incremental=True)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        assert await many(scheduler, PARTIAL, 20, CALL_S * 1.5) == 0

    scheduled(worker, scenario)
