"""A recognition worker whose calls cost what a test sets, and a scheduler for it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.errors import EngineCrashed, EngineMissing
from engines.base import AsrInfo, AsrItem, AsrResult
from serving.asr.scheduling import ASR_SCHEDULING
from serving.scheduling.policy import BatchWorker
from serving.scheduling.scheduler import Scheduler
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, LoopClock

CALL_S = 0.1

AsrScheduler = Scheduler[AsrItem, AsrResult]
AsrWorker = BatchWorker[AsrItem, AsrResult]


def fixed(count: int) -> float:
    """Costs as on a GPU: a call costs the same, however many items it has."""
    return CALL_S


def linear(count: int) -> float:
    """Costs as on a CPU: every item costs as much as it does alone."""
    return CALL_S * count


@dataclass
class Worker:
    """An `AsrWorker` in virtual time that returns the utterance's name as its text."""

    max_batch: int = 4
    cost_s: Callable[[int], float] = fixed
    is_incremental: bool = False
    batches: list[list[str]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    crashes: int = 0
    "The number of next calls that end in a crash."
    missing: bool = False
    "The worker cannot be loaded."
    lost: asyncio.Event | None = None
    "The worker died; the event is set when it is known that it does not load again."
    is_down: bool = False
    "The worker died, and does not come back."

    @property
    def info(self) -> AsrInfo:
        return AsrInfo("slow", "slow", ("en",), self.max_batch, self.is_incremental)

    @property
    def is_ready(self) -> bool:
        return not (self.missing or self.is_down or self.lost)

    async def run(self) -> None:
        if self.missing:
            raise EngineMissing("asr", "slow", "no weights")
        await asyncio.Event().wait()

    async def ready(self) -> AsrInfo:
        if self.missing:
            raise EngineMissing("asr", "slow", "no weights")
        if self.lost and not self.lost.is_set():
            await self.lost.wait()
            raise EngineCrashed("asr", "slow", "does not load again")
        if not self.is_ready:
            await asyncio.Event().wait()
        return self.info

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        self.batches.append([item.utterance for item in items])
        await asyncio.sleep(self.cost_s(len(items)))
        if self.crashes:
            self.crashes -= 1
            raise EngineCrashed("asr", "slow", "died")
        return [AsrResult(item.utterance, 1.0, "en") for item in items]

    def forget(self, utterance: str) -> None:
        self.forgotten.append(utterance)


def item(name: str, *, is_final: bool = True) -> AsrItem:
    return AsrItem(name, np.zeros(160, np.int16), is_final)


async def settle() -> None:
    """Waits until what was started has queued up or is with a worker."""
    await asyncio.sleep(0.001)


async def outcomes(calls: Sequence[Awaitable[AsrResult]]) -> list[AsrResult | BaseException]:
    return await asyncio.gather(*calls, return_exceptions=True)


class _Over(Exception):
    pass


Scenario = Callable[[AsrScheduler, asyncio.TaskGroup], Awaitable[None]]


def scheduled(workers: AsrWorker | Sequence[AsrWorker], scenario: Scenario) -> tuple[float, Counts]:
    """Runs the scenario with a scheduler; returns virtual seconds and metrics."""
    pool = workers if isinstance(workers, Sequence) else [workers]
    metrics = Counts()

    async def main() -> None:
        scheduler = AsrScheduler(pool, ASR_SCHEDULING, LoopClock(), metrics)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(scheduler.run())
                await scheduler.ready()
                await scenario(scheduler, tasks)
                raise _Over
        except* _Over:
            pass

    return run_virtual(main()), metrics
