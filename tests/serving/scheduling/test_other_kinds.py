"""A model of another kind with the same scheduler: items are texts, results are numbers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import pytest

from core.errors import EngineCrashed, EngineError, OverloadedError, SupersededError
from serving.scheduling.policy import PriorityRule, SchedulingPolicy
from serving.scheduling.scheduler import Scheduler
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, LoopClock

CALL_S = 0.1


class EmbedPriority(IntEnum):
    QUERY = 0
    DOCUMENT = 1


EMBEDDING: SchedulingPolicy[str] = SchedulingPolicy(
    kind="embed",
    work="embedding",
    rules={
        EmbedPriority.QUERY: PriorityRule(wait_limit_s=0.25, deadline_s=1.0),
        EmbedPriority.DOCUMENT: PriorityRule(wait_limit_s=60.0, deadline_s=300.0, is_bulk=True),
    },
)


@dataclass(frozen=True)
class EmbedInfo:
    name: str = "bag_of_letters"
    max_batch: int = 4
    is_incremental: bool = False


@dataclass
class LetterCounter:
    """A model that returns the number of letters of each text."""

    batches: list[list[str]] = field(default_factory=list)
    crashes: int = 0
    is_ready: bool = True

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def ready(self) -> EmbedInfo:
        return EmbedInfo()

    async def decode(self, items: Sequence[str]) -> list[int]:
        self.batches.append(list(items))
        await asyncio.sleep(CALL_S)
        if self.crashes:
            self.crashes -= 1
            raise EngineCrashed("embed", "bag_of_letters", "died")
        return [len(item) for item in items]

    def forget(self, sequence: str) -> None:
        pytest.fail("it keeps nothing")


Scenario = Callable[[Scheduler[str, int]], Awaitable[None]]


def scheduled(worker: LetterCounter, policy: SchedulingPolicy[str], scenario: Scenario) -> Counts:
    metrics = Counts()

    async def main() -> None:
        scheduler: Scheduler[str, int] = Scheduler([worker], policy, LoopClock(), metrics)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(scheduler.run())
            info = await scheduler.ready()
            assert info.name == "bag_of_letters"
            await scenario(scheduler)
            assert (scheduler.waiting, scheduler.open_sequences) == (0, 0)
            running.cancel()

    run_virtual(main())
    return metrics


def test_items_of_another_kind_share_calls_by_urgency_and_leave_no_state() -> None:
    worker = LetterCounter()

    async def scenario(scheduler: Scheduler[str, int]) -> None:
        assert await scheduler.submit("first", EmbedPriority.QUERY) == 5
        async with asyncio.TaskGroup() as tasks:
            texts = ["a", "bb", "a", "dddd"]
            documents = [
                tasks.create_task(scheduler.submit(text, EmbedPriority.DOCUMENT)) for text in texts
            ]
            query = tasks.create_task(scheduler.submit("query", EmbedPriority.QUERY))
        assert query.result() == 5
        assert [one.result() for one in documents] == [1, 2, 1, 4]

    metrics = scheduled(worker, EMBEDDING, scenario)
    # The query goes first. The first document alone is measured, then documents share calls.
    assert worker.batches == [["first"], ["query"], ["a"], ["bb", "a"], ["dddd"]]
    assert metrics.observed["earshot_embed_batch_size"] == [1, 1, 1, 2, 1]
    assert not [name for name in metrics.observed if "asr" in name]


def test_errors_and_refusals_name_the_kind() -> None:
    worker = LetterCounter()

    async def scenario(scheduler: Scheduler[str, int]) -> None:
        for _ in range(2):
            await scheduler.submit("measured", EmbedPriority.QUERY)
        worker.crashes = 1
        with pytest.raises(EngineError, match="embed engine 'bag_of_letters': died"):
            await scheduler.submit("lost", EmbedPriority.QUERY)
        texts = [f"text {number}" for number in range(9)]
        ends = await asyncio.gather(
            *(scheduler.submit(text, EmbedPriority.QUERY) for text in texts),
            return_exceptions=True,
        )
        refused = [str(end) for end in ends if isinstance(end, OverloadedError)]
        assert 0 < len(refused) < len(texts)
        assert {text.partition(" would")[0] for text in refused} == {"query embedding"}

    metrics = scheduled(worker, EMBEDDING, scenario)
    assert metrics.counts["earshot_embed_refused"] > 0


def test_a_policy_with_sequences_replaces_older_items_and_promotes_them() -> None:
    worker = LetterCounter()
    policy: SchedulingPolicy[str] = SchedulingPolicy(
        kind="embed",
        work="embedding",
        rules={
            EmbedPriority.QUERY: PriorityRule(wait_limit_s=9.0, deadline_s=20.0),
            EmbedPriority.DOCUMENT: PriorityRule(
                wait_limit_s=9.0,
                deadline_s=20.0,
                is_droppable=True,
                promoted_to=EmbedPriority.QUERY,
            ),
        },
        sequence_of=lambda text: text.partition(":")[0],
    )

    async def scenario(scheduler: Scheduler[str, int]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(scheduler.submit("running:", EmbedPriority.QUERY))
            await asyncio.sleep(0.01)
            old = tasks.create_task(_outcome(scheduler, "a:old"))
            other = tasks.create_task(_outcome(scheduler, "b:x"))
            new = tasks.create_task(_outcome(scheduler, "a:newer"))
            await asyncio.sleep(0.01)
            scheduler.promote("b")
        assert isinstance(old.result(), SupersededError)
        assert (new.result(), other.result()) == (7, 3)

    metrics = scheduled(worker, policy, scenario)
    assert metrics.counts["earshot_embed_superseded"] == 1
    assert worker.batches == [["running:"], ["b:x", "a:newer"]]


async def _outcome(scheduler: Scheduler[str, int], text: str) -> int | OverloadedError:
    try:
        return await scheduler.submit(text, EmbedPriority.DOCUMENT)
    except OverloadedError as error:
        return error
