"""The recognition queue: priorities, batches, cancellation, errors, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import pytest

from core.errors import EngineCrashed, EngineMissing, EngineTimeout, Overloaded
from engines.base import AsrInfo, AsrItem, AsrResult
from serving.scheduler import DEADLINE_S, MAX_WAITING, AsrScheduler, Priority
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, LoopClock


class Worker:
    """Takes 100 ms per batch, however large."""

    def __init__(self, max_batch: int = 4) -> None:
        self.info = AsrInfo("slow", "slow", ("en",), max_batch, is_incremental=False)
        self.batches: list[list[str]] = []
        self.crashes = 0
        self.forgotten: list[str] = []
        self.missing = False
        self.is_down = False

    @property
    def is_ready(self) -> bool:
        return not (self.missing or self.is_down)

    async def run(self) -> None:
        if self.missing:
            raise EngineMissing("asr", "slow", "no weights")
        await asyncio.Event().wait()

    async def ready(self) -> AsrInfo:
        if self.missing:
            await asyncio.Event().wait()
        return self.info

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        self.batches.append([item.utterance for item in items])
        await asyncio.sleep(0.1)
        if self.crashes:
            self.crashes -= 1
            raise EngineCrashed("asr", "slow", "died")
        return [AsrResult(item.utterance, 1.0, "en") for item in items]

    def forget(self, utterance: str) -> None:
        self.forgotten.append(utterance)


def item(name: str) -> AsrItem:
    return AsrItem(name, np.zeros(160, np.int16), is_final=True)


class Stop(Exception):
    pass


Scenario = Callable[[AsrScheduler, asyncio.TaskGroup], Awaitable[None]]


async def with_scheduler(worker: Worker, scenario: Scenario) -> None:
    scheduler = AsrScheduler([worker], LoopClock(), Counts())
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(scheduler.run())
            await scheduler.ready()
            await scenario(scheduler, tasks)
            raise Stop
    except* Stop:
        pass


def test_the_urgent_go_first_and_share_a_batch() -> None:
    worker = Worker(max_batch=2)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        first = tasks.create_task(scheduler.decode(item("lone"), Priority.BATCH))
        await asyncio.sleep(0.01)
        assert worker.batches == [["lone"]]  # not delayed for company
        rest = [
            tasks.create_task(scheduler.decode(item(name), priority))
            for name, priority in [
                ("batch", Priority.BATCH),
                ("partial", Priority.PARTIAL),
                ("final", Priority.FINAL),
                ("speculative", Priority.SPECULATIVE),
            ]
        ]
        await asyncio.gather(first, *rest)
        assert [task.result().text for task in rest][2] == "final"

    run_virtual(with_scheduler(worker, scenario))
    assert worker.batches == [["lone"], ["final", "speculative"], ["partial", "batch"]]


def test_cancelling_gives_the_place_up() -> None:
    worker = Worker(max_batch=1)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        running = tasks.create_task(scheduler.decode(item("running"), Priority.FINAL))
        await asyncio.sleep(0.01)
        waiting = tasks.create_task(scheduler.decode(item("cancelled"), Priority.FINAL))
        await asyncio.sleep(0.01)
        assert scheduler.waiting == 1
        waiting.cancel()
        await asyncio.wait([waiting])
        assert scheduler.waiting == 0
        await running
        assert (await scheduler.decode(item("next"), Priority.FINAL)).text == "next"

    run_virtual(with_scheduler(worker, scenario))
    assert worker.batches == [["running"], ["next"]]


def test_a_new_utterance_goes_where_least_is_to_do_and_stays_there() -> None:
    workers = [Worker(max_batch=1), Worker(max_batch=1)]

    async def main() -> None:
        scheduler = AsrScheduler(workers, LoopClock(), Counts())
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(scheduler.run())
            await scheduler.ready()
            long = tasks.create_task(scheduler.decode(item("long"), Priority.FINAL))
            await asyncio.sleep(0.01)
            for _ in range(3):  # partials of one utterance, beside the long decode
                part = AsrItem("spoken", np.zeros(160, np.int16), is_final=False)
                await scheduler.decode(part, Priority.PARTIAL)
            await long
            await scheduler.decode(item("spoken"), Priority.FINAL)
            scheduler.forget("spoken")
            open_ = AsrItem("open", np.zeros(160, np.int16), is_final=False)
            await scheduler.decode(open_, Priority.PARTIAL)
            scheduler.forget("open")
            scheduler.forget("open")
            serving.cancel()

    run_virtual(main())
    assert workers[0].batches[0] == ["long"]
    assert workers[1].batches == [["spoken"]] * 4
    assert workers[0].forgotten + workers[1].forgotten == ["open"]  # a final one is forgotten


def test_a_worker_that_is_not_there_gets_nothing_new() -> None:
    workers = [Worker(max_batch=1), Worker(max_batch=1)]

    async def main() -> None:
        scheduler = AsrScheduler(workers, LoopClock(), Counts())
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(scheduler.run())
            await scheduler.ready()
            workers[1].is_down = True
            await asyncio.gather(
                *(scheduler.decode(item(name), Priority.FINAL) for name in ("a", "b"))
            )
            serving.cancel()

    run_virtual(main())
    assert workers[0].batches == [["a"], ["b"]]


def test_a_crash_fails_its_batch_only() -> None:
    worker = Worker(max_batch=2)
    worker.crashes = 1

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        results = await asyncio.gather(
            *(scheduler.decode(item(n), Priority.FINAL) for n in "abc"), return_exceptions=True
        )
        assert [type(r).__name__ for r in results] == [
            "EngineCrashed", "EngineCrashed", "AsrResult",
        ]  # fmt: skip

    run_virtual(with_scheduler(worker, scenario))


def test_the_queue_is_bounded() -> None:
    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        waiting = []
        for count in (4, MAX_WAITING):  # the first four are taken at once
            waiting += [
                tasks.create_task(scheduler.decode(item(str(n)), Priority.PARTIAL))
                for n in range(count)
            ]
            await asyncio.sleep(0.01)
        with pytest.raises(Overloaded) as caught:
            await scheduler.decode(item("one too many"), Priority.PARTIAL)
        assert caught.value.retry_after_s > 0
        for task in waiting:
            task.cancel()

    run_virtual(with_scheduler(Worker(), scenario))


def test_a_full_queue_gives_a_partial_up_for_a_final() -> None:
    worker = Worker(max_batch=1)

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        calls = [scheduler.decode(item(str(n)), Priority.PARTIAL) for n in range(MAX_WAITING + 1)]
        async with asyncio.TaskGroup() as waiting:
            first = waiting.create_task(calls[0])
            await asyncio.sleep(0.01)
            outcomes = waiting.create_task(_all(calls[1:]))
            await asyncio.sleep(0.01)
            final = await scheduler.decode(item("final"), Priority.FINAL)
            assert (final.text, first.done()) == ("final", True)
            assert scheduler.waiting == MAX_WAITING - 2
        assert [isinstance(o, Overloaded) for o in outcomes.result()[-2:]] == [False, True]

    run_virtual(with_scheduler(worker, scenario))


async def _all(calls: Sequence[Awaitable[AsrResult]]) -> list[AsrResult | BaseException]:
    return await asyncio.gather(*calls, return_exceptions=True)


def test_nobody_waits_for_ever_for_a_worker_that_does_not_come_back() -> None:
    worker = Worker()

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        await asyncio.sleep(0.01)
        worker.missing = True
        await scheduler.decode(item("last"), Priority.FINAL)
        with pytest.raises(EngineTimeout, match="no answer"):
            await scheduler.decode(item("late"), Priority.FINAL)
        assert scheduler.waiting == 0

    assert run_virtual(with_scheduler(worker, scenario)) == pytest.approx(DEADLINE_S + 0.11)


def test_a_model_that_cannot_load_ends_the_scheduler_with_the_reason() -> None:
    worker = Worker()
    worker.missing = True

    async def main() -> None:
        scheduler = AsrScheduler([worker], LoopClock(), Counts())
        with pytest.raises(ExceptionGroup) as caught:
            await scheduler.run()
        assert "no weights" in str(caught.value.exceptions[0])

    run_virtual(main())
