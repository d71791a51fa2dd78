"""One queue per ASR model, for every session and request: priorities, micro-batches, cancellation.

A lone request is never delayed for company: a worker that becomes free takes what waits, best
priority first, up to the model's batch size.
"""

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from core.errors import EngineError, EngineTimeout, Overloaded
from core.ports import Clock, Metrics
from engines.base import AsrInfo, AsrItem, AsrResult

logger = logging.getLogger(__name__)

MAX_WAITING = 256
"Above it a newcomer would wait for seconds even on a fast machine; the least urgent is refused."
RETRY_AFTER_S = 2
DEADLINE_S = 90.0
"Longer than a hung call and the restart after it; a worker that cannot restart is not waited for."


class Priority(IntEnum):
    """What is served first."""

    FINAL = 0
    SPECULATIVE = 1
    PARTIAL = 2
    BATCH = 3


class AsrWorker(Protocol):
    """A place where the model runs: `pools.process.ProcessWorker`, later others."""

    @property
    def is_ready(self) -> bool: ...

    async def run(self) -> None: ...

    async def ready(self) -> AsrInfo: ...

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]: ...

    def forget(self, utterance: str) -> None: ...


@dataclass(order=True, slots=True)
class _Waiting:
    priority: Priority
    order: int
    item: AsrItem = field(compare=False)
    answer: asyncio.Future[AsrResult] = field(compare=False)
    since: float = field(compare=False)


class AsrScheduler:
    """Shares the workers of one model. `run` owns its tasks; `decode` may be called by anybody."""

    def __init__(self, workers: Sequence[AsrWorker], clock: Clock, metrics: Metrics) -> None:
        self._workers = workers
        self._clock, self._metrics = clock, metrics
        self._queues: list[list[_Waiting]] = [[] for _ in workers]
        self._wake = [asyncio.Event() for _ in workers]
        self._running = [0 for _ in workers]
        "Requests that each worker has taken."
        self._homes: dict[str, int] = {}
        "Utterance -> the worker that keeps its decoder state; until it is final or forgotten."
        self._order = 0
        self._info: AsrInfo | None = None

    @property
    def info(self) -> AsrInfo:
        """Of the loaded model; `ready` first."""
        if self._info is None:
            raise RuntimeError("the model is not loaded yet: await ready() first")
        return self._info

    @property
    def waiting(self) -> int:
        """Requests that no worker has taken yet."""
        return sum(len(queue) for queue in self._queues)

    async def run(self) -> None:
        """Serve until cancelled. Raises EngineMissing when the model cannot be loaded at all."""
        async with asyncio.TaskGroup() as tasks:
            for index in range(len(self._workers)):
                tasks.create_task(self._run_worker(index), name=f"asr-worker-{index}")
                tasks.create_task(self._serve(index), name=f"asr-serve-{index}")

    async def ready(self) -> AsrInfo:
        """Wait until the model is loaded; further workers join when they have it, too."""
        self._info = await self._workers[0].ready()
        return self._info

    async def decode(self, item: AsrItem, priority: Priority) -> AsrResult:
        """One item, when its turn comes. Cancelling the call gives its place up.

        Raises EngineError (EngineCrashed, EngineTimeout), Overloaded when the queue is full of
        what is at least as urgent.
        """
        if self.waiting >= MAX_WAITING:
            self._make_room(priority)
        index = self._home_of(item.utterance)
        self._order += 1
        answer: asyncio.Future[AsrResult] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(priority, self._order, item, answer, self._clock.now())
        heapq.heappush(self._queues[index], waiting)
        self._wake[index].set()
        try:
            async with asyncio.timeout(DEADLINE_S):
                result = await answer
            if item.is_final:
                self._homes.pop(item.utterance, None)
            return result
        except TimeoutError:
            why = f"no answer in {DEADLINE_S:.0f} s"
            raise EngineTimeout("asr", self.info.name, why) from None
        finally:
            if waiting in self._queues[index]:
                self._queues[index].remove(waiting)
                heapq.heapify(self._queues[index])

    def forget(self, utterance: str) -> None:
        """The utterance came to nothing: free what a worker keeps for it."""
        index = self._homes.pop(utterance, None)
        if index is not None:
            self._workers[index].forget(utterance)

    def _make_room(self, priority: Priority) -> None:
        """Refuse the newcomer, or what is less urgent: partials are the first thing to go."""
        busy = Overloaded(
            f"{self.waiting} recognition requests wait, limit {MAX_WAITING}",
            retry_after_s=RETRY_AFTER_S,
            code="engine_busy",
        )
        queue = max((q for q in self._queues if q), key=max)
        last = max(queue)
        if last.priority <= priority:
            raise busy
        queue.remove(last)
        heapq.heapify(queue)
        if not last.answer.done():
            last.answer.set_exception(busy)

    def _home_of(self, utterance: str) -> int:
        """An utterance stays with one worker; a new one goes where least is to do, so that one
        session's long decode does not make the others wait."""
        index = self._homes.get(utterance)
        if index is None:
            open_ = Counter(self._homes.values())
            index = min(
                range(len(self._workers)),
                key=lambda i: (not self._workers[i].is_ready, self._load(i), open_[i]),
            )
            self._homes[utterance] = index
        return index

    def _load(self, index: int) -> int:
        return len(self._queues[index]) + self._running[index]

    async def _run_worker(self, index: int) -> None:
        """The first loads alone: on few cores side by side would make everybody wait longer."""
        if index > 0:
            await self._workers[0].ready()
        await self._workers[index].run()

    async def _serve(self, index: int) -> None:
        worker = self._workers[index]
        while True:
            info = await worker.ready()
            batch = await self._take(index, info.max_batch)
            now = self._clock.now()
            for waiting in batch:
                self._metrics.observe("earshot_asr_queue_seconds", now - waiting.since)
            self._metrics.count("earshot_asr_batches")
            self._metrics.count("earshot_asr_items", len(batch))
            self._running[index] = len(batch)
            try:
                results = await worker.decode([waiting.item for waiting in batch])
            except EngineError as exc:
                logger.warning("! %s: %d request(s) lost (%s)", exc, len(batch), exc.code)
                self._metrics.count("earshot_errors", code=exc.code)
                for waiting in batch:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(exc)
                continue
            finally:
                self._running[index] = 0
            self._metrics.observe("earshot_asr_compute_seconds", self._clock.now() - now)
            for waiting, result in zip(batch, results, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(result)

    async def _take(self, index: int, max_batch: int) -> list[_Waiting]:
        """Wait for work; hand out the most urgent items."""
        queue, wake = self._queues[index], self._wake[index]
        while True:
            batch: list[_Waiting] = []
            while queue and len(batch) < max_batch:
                waiting = heapq.heappop(queue)
                if not waiting.answer.done():
                    batch.append(waiting)
            if batch:
                return batch
            wake.clear()
            await wake.wait()
