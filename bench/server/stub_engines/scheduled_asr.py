"""Compares two ways to share a model whose calls take a fixed time: the scheduler, and a lock."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench.tools.stats import percentile
from core.audio import ASR_RATE_HZ, silence
from engines.base import AsrInfo, AsrItem, AsrResult
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.scheduling.policy import BatchWorker
from serving.scheduling.scheduler import Scheduler

CALL_S = 0.05
"Time of a call: about that of a large Whisper for eight windows on a GPU."

MAX_BATCH = 8
"Most items of a call."
TOGETHER = 8
"Number of requests that are sent at once."
CALLERS = 32
"Number of callers at the same time: enough that the next batch is always full."

AsrScheduler = Scheduler[AsrItem, AsrResult]
"Scheduler of recognition."

DecodeCall = Callable[[AsrItem], Coroutine[Any, Any, AsrResult]]
"Function that recognises one item."


@dataclass(frozen=True, slots=True)
class SharingResult:
    """Result of one way of sharing the model."""

    alone_ms: float
    "Time of a single request."
    together_p95_ms: float
    "95th percentile of the time of TOGETHER requests at once."
    per_s: float
    "Requests per second of CALLERS callers."


class NullMetrics:
    """`core.ports.Metrics` that drops all values."""

    def count(self, name: str, value: float = 1, /, **labels: str) -> None: ...

    def observe(self, name: str, seconds: float, /, **labels: str) -> None: ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...


class RunningLoopClock:
    """`core.ports.Clock` of the running event loop."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> datetime:
        return datetime.now(UTC)


class StubWorker:
    """`BatchWorker` in this process: one call at a time, all of the same length."""

    info = AsrInfo("stub", "stub", ("en",), MAX_BATCH, is_incremental=False)
    is_ready = True

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def ready(self) -> AsrInfo:
        return self.info

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        await asyncio.sleep(CALL_S)
        return [AsrResult(item.utterance, 1.0, "en") for item in items]

    def forget(self, utterance: str) -> None: ...


@asynccontextmanager
async def run_scheduler(
    workers: Sequence[BatchWorker[AsrItem, AsrResult]],
) -> AsyncIterator[AsrScheduler]:
    """Yields a scheduler that runs while the body runs."""
    scheduler = Scheduler(workers, ASR_SCHEDULING, RunningLoopClock(), NullMetrics())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(scheduler.run())
        await scheduler.ready()
        yield scheduler
        running.cancel()


async def measure_scheduler(requests: int) -> SharingResult:
    """Measures requests that the scheduler batches. requests: as for `measure`."""
    async with run_scheduler([StubWorker()]) as scheduler:

        async def decode(item: AsrItem) -> AsrResult:
            return await scheduler.submit(item, DecodePriority.FINAL)

        return await measure(decode, requests)


async def measure_lock(requests: int) -> SharingResult:
    """Measures one call after another, as in servers that protect their model with a lock."""
    worker, lock = StubWorker(), asyncio.Lock()

    async def decode(item: AsrItem) -> AsrResult:
        async with lock:
            return (await worker.decode([item]))[0]

    return await measure(decode, requests)


async def measure(decode: DecodeCall, requests: int) -> SharingResult:
    """Measures one request, TOGETHER at once, then CALLERS that each send one after another.

    requests: number of requests of all callers together.
    """
    alone_s = await _took_s(decode, "alone")
    names = [f"together {n}" for n in range(TOGETHER)]
    together_s = await asyncio.gather(*(_took_s(decode, name) for name in names))
    loop = asyncio.get_running_loop()
    began, left = loop.time(), iter(range(requests))

    async def caller() -> None:
        for number in left:
            await _took_s(decode, f"many {number}")

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    per_s = requests / (loop.time() - began)
    return SharingResult(alone_s * 1000, percentile(together_s, 95) * 1000, per_s)


async def _took_s(decode: DecodeCall, name: str) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await decode(AsrItem(name, silence(100, ASR_RATE_HZ), is_final=True))
    return loop.time() - began
