"""Scheduler of one ASR model for all sessions and requests: priorities, micro-batches,
cancellation.

A lone request is never delayed to wait for others: a worker that becomes free takes the most urgent
waiting requests. The costs of calls decide how many go into one call, and which are refused.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import EarshotError, EngineCrashed, EngineError, EngineMissing, EngineTimeout
from core.ports import Clock, Metrics
from engines.base import AsrInfo, AsrItem, AsrResult
from serving.scheduling.admission import AdmissionControl
from serving.scheduling.affinity import WorkerAffinity
from serving.scheduling.cost_model import BatchCostModel, WorkerLoad
from serving.scheduling.priority import BEGIN_SHARE, DEADLINE_S, DecodePriority
from serving.scheduling.queue import QueuedRequest, RequestQueue
from serving.workers.base import AsrWorker

__all__ = ["AsrScheduler", "AsrWorker", "DecodePriority"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _WorkerCall:
    """The call that a worker computes now."""

    batch: Sequence[QueuedRequest]
    began: float
    "Clock time of its start, in seconds."
    until: asyncio.Timeout
    "Timeout that ends the call early when it is rescheduled."

    @property
    def priorities(self) -> list[DecodePriority]:
        """Priorities of the call's items."""
        return [waiting.priority for waiting in self.batch]


class AsrScheduler:
    """Shares the workers of one model among all callers.

    Example:
        scheduler = AsrScheduler(workers, clock, metrics)
        task = tasks.create_task(scheduler.run())       # owns the scheduler's tasks
        info = await scheduler.ready()                  # the model is loaded
        result = await scheduler.decode(AsrItem("u1", pcm, is_final=True), DecodePriority.FINAL)
    """

    def __init__(
        self,
        workers: Sequence[AsrWorker],
        clock: Clock,
        metrics: Metrics,
        *,
        can_leave: bool = False,
    ) -> None:
        """Creates the scheduler; `run` starts it. `can_leave`: the workers stop computing a
        cancelled request at once."""
        self._workers, self._can_leave = workers, can_leave
        self._clock, self._metrics = clock, metrics
        self._line = RequestQueue()
        self._costs = BatchCostModel()
        self._load = WorkerLoad(len(workers))
        self._homes = WorkerAffinity()
        self._admission = AdmissionControl(self._line, self.expected_wait_s, metrics)
        self._wake = [asyncio.Event() for _ in workers]
        self._idle: set[int] = set()
        "Indices of the workers that wait to be woken."
        self._calls: dict[int, _WorkerCall] = {}
        "Present call by the index of its worker."
        self._order = 0
        self._info: AsrInfo | None = None
        self._has_stopped = False

    @property
    def info(self) -> AsrInfo:
        """Properties of the loaded model. Raises RuntimeError before `ready` has returned."""
        if self._info is None:
            raise RuntimeError("the model is not loaded yet: await ready() first")
        return self._info

    @property
    def waiting(self) -> int:
        """Number of requests that no worker has taken yet."""
        return len(self._line)

    @property
    def open_utterances(self) -> int:
        """Number of utterances for which a worker keeps decoder state."""
        return len(self._homes)

    async def run(self) -> None:
        """Serves until it is cancelled. Raises EngineMissing when the model cannot be loaded at
        all."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._start(0, tasks)
                for index in range(1, len(self._workers)):
                    tasks.create_task(self._help(index), name=f"asr-help-{index}")
        finally:
            self._has_stopped = True
            for waiting in self._line:
                waiting.fail(self._unloaded())

    async def ready(self) -> AsrInfo:
        """Waits until the first worker has loaded the model, and returns its properties. Further
        workers join when they have loaded it, too."""
        self._info = await self._workers[0].ready()
        return self._info

    def admit(self, priority: DecodePriority) -> None:
        """Checks that work of many requests, such as a recording, is accepted now. Raises
        OverloadedError."""
        self._admission.check(priority, BEGIN_SHARE)

    async def decode(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        """Recognises one item when its turn comes, and returns the result. Cancelling the call
        gives up its place.

        `deadline_s`: seconds within which a worker must begin; None: DEADLINE_S of the priority.
        Raises EngineError (EngineCrashed, EngineTimeout); OverloadedError when the expected wait is
        too long; SupersededError when a newer request of the utterance replaces a partial or
        speculative one.
        """
        limit_s = DEADLINE_S[priority] if deadline_s is None else deadline_s
        if self._has_stopped:
            raise self._unloaded()
        order = self._admission.replace_older(item.utterance, priority)
        if order is None:  # a request that replaces another has been admitted with that
            self._check_room(priority)
            self._admission.check(priority)
            self._admission.make_room(priority)
            self._order = order = self._order + 1
        answer: asyncio.Future[AsrResult] = asyncio.get_running_loop().create_future()
        deadline = asyncio.timeout(limit_s)
        waiting = QueuedRequest(priority, order, item, answer, self._clock.now(), deadline)
        try:
            async with deadline:
                self._line.add(waiting)
                self._wake_for(item.utterance)
                return await answer
        except TimeoutError:
            waited_s = self._clock.now() - waiting.since
            raise self._admission.expired(waiting.priority, waited_s, self._name) from None
        finally:
            self._line.discard(waiting)
            if self._can_leave and answer.cancelled():
                self._leave(waiting)

    def hurry(self, utterance: str) -> None:
        """Turns the utterance's waiting speculative request into a final, because the turn is
        really over."""
        until = asyncio.get_running_loop().time() + DEADLINE_S[DecodePriority.FINAL]
        self._line.promote(utterance, until)

    def forget(self, utterance: str) -> None:
        """Frees what a worker keeps for an utterance that was cancelled."""
        index = self._homes.close(utterance)
        if index is not None:
            self._workers[index].forget(utterance)

    def expected_wait_s(self, priority: DecodePriority) -> float:
        """Returns the expected seconds until a worker takes a new request of this priority; 0 while
        nothing has been measured."""
        count = sum(worker.is_ready for worker in self._workers) or len(self._workers)
        ahead = self._line.ahead_of(priority)
        max_batch = self._info.max_batch if self._info else 1
        return self._until_free_s() + self._costs.queue_s(ahead, max_batch) / count

    def _leave(self, waiting: QueuedRequest) -> None:
        """Ends a worker's call if no caller waits for any of its items any more."""
        for call in self._calls.values():
            if waiting in call.batch and all(one.answer.done() for one in call.batch):
                call.until.reschedule(asyncio.get_running_loop().time())

    def _check_room(self, priority: DecodePriority) -> None:
        """Raises OverloadedError for a partial that would take time that others need.

        An incremental engine is exempt: its partials are the work itself, and its final is then
        short.
        """
        if priority is not DecodePriority.PARTIAL or self.info.is_incremental:
            return
        running = sum(call.priorities.count(priority) for call in self._calls.values())
        count = 1 + running + self._line.ahead_of(priority)[priority]
        soon_s = count * self._costs.one_s(priority)
        if not self._load.has_room_for_partial(self._clock.now(), soon_s):
            raise self._admission.out_of_share(priority)

    def _until_free_s(self) -> float:
        """Returns the expected seconds until the first worker is free."""
        if self._free_workers():
            return 0.0
        now = self._clock.now()
        left = [
            self._costs.call_s(call.priorities) - (now - call.began)
            for call in self._calls.values()
        ]
        return max(0.0, min(left, default=0.0))

    @property
    def _name(self) -> str:
        return self._info.name if self._info else "asr"

    def _unloaded(self) -> EngineCrashed:
        return EngineCrashed("asr", self._name, "the model is being unloaded")

    def _start(self, index: int, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self._workers[index].run(), name=f"asr-worker-{index}")
        tasks.create_task(self._serve(index), name=f"asr-serve-{index}")

    async def _help(self, index: int) -> None:
        """Runs a further worker.

        It loads after the first: on few cores, loading at the same time would make all callers wait
        longer. If it fails to load, as on a full GPU, the other workers serve without it.
        """
        await self._workers[0].ready()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._start(index, tasks)
        except* (EarshotError, OSError) as group:
            logger.error(
                "! %s: continuing without worker %d: %s", self._name, index, group.exceptions
            )
            self._metrics.count("earshot_errors", code=EngineMissing.code)

    async def _serve(self, index: int) -> None:
        worker = self._workers[index]
        info = await worker.ready()
        while True:
            if not worker.is_ready:
                self._wake_all()  # another worker may take the request that it was woken for
            try:
                info = await worker.ready()
            except EngineCrashed as error:
                self._cannot_serve(error)
                continue
            batch = self._take(index, info.max_batch)
            if batch:
                await self._compute(index, batch)
            else:
                self._idle.add(index)
                self._wake[index].clear()
                await self._wake[index].wait()
                self._idle.discard(index)

    def _cannot_serve(self, error: EngineCrashed) -> None:
        """Fails all waiting requests if this worker cannot be restarted now and no other worker is
        ready."""
        if not any(worker.is_ready for worker in self._workers):
            for waiting in self._line:
                waiting.fail(error)

    def _take(self, index: int, max_batch: int) -> list[QueuedRequest]:
        free = len([i for i in self._free_workers() if i != index])
        now = asyncio.get_running_loop().time()
        batch = self._line.take(index, self._home, now, max_batch, self._costs, free)
        for waiting in batch:
            waiting.deadline.reschedule(None)  # it has begun; the worker has its own time limit
            self._settle_in(index, waiting.item)
        return batch

    def _settle_in(self, index: int, item: AsrItem) -> None:
        """Makes the worker the home of the utterance, because it keeps the decoder state from now
        on. A former home may drop its state."""
        if self._homes.of(item.utterance) not in (None, index):
            self.forget(item.utterance)
        if not item.is_final:
            for utterance, home in self._homes.open(item.utterance, index):
                self._workers[home].forget(utterance)

    def _free_workers(self) -> list[int]:
        """Returns the indices of the workers that are ready and compute nothing."""
        return [i for i, w in enumerate(self._workers) if w.is_ready and i not in self._calls]

    async def _compute(self, index: int, batch: Sequence[QueuedRequest]) -> None:
        until = asyncio.timeout(None)
        call = self._calls[index] = _WorkerCall(batch, self._clock.now(), until)
        for waiting in batch:
            waited_s, kind = call.began - waiting.since, waiting.priority.name.lower()
            self._metrics.observe("earshot_asr_queue_seconds", waited_s, priority=kind)
        self._metrics.observe("earshot_asr_batch_size", len(batch))
        try:
            async with until:
                results = await self._workers[index].decode([waiting.item for waiting in batch])
        except TimeoutError:  # `_leave` ended the call: no caller waits for its items
            self._settle(index, batch)
        except EngineError as exc:
            self._lose(index, batch, exc)
        else:
            took_s = self._clock.now() - call.began
            self._metrics.observe("earshot_asr_compute_seconds", took_s, batch=str(len(batch)))
            self._costs.observe(call.priorities, took_s)
            self._load.add(call.priorities, took_s, self._clock.now())
            for waiting, result in zip(batch, results, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(result)
            self._settle(index, batch)
        finally:
            del self._calls[index]
            for waiting in batch:  # only requests without an answer: the scheduler is cancelled
                waiting.fail(self._unloaded())

    def _lose(self, index: int, batch: Sequence[QueuedRequest], error: EngineError) -> None:
        """Fails the requests of a call that ended with an error."""
        logger.warning("! %s: %d request(s) lost (%s)", error, len(batch), error.code)
        self._metrics.count("earshot_errors", code=error.code)
        for waiting in batch:
            waiting.fail(error)
        if isinstance(error, (EngineCrashed, EngineTimeout)):  # its process and state are gone
            self._homes.leave(index)
        else:
            self._settle(index, batch)

    def _settle(self, index: int, batch: Sequence[QueuedRequest]) -> None:
        """Updates the affinity after a call.

        Engines drop finished utterances themselves. A cancelled utterance is forgotten, unless it
        goes on: its final may follow a cancelled partial.
        """
        for waiting in batch:
            utterance = waiting.item.utterance
            if waiting.item.is_final:
                self._homes.close(utterance)
            elif waiting.answer.cancelled() and not self._line.holds(utterance):
                self.forget(utterance)

    def _home(self, utterance: str) -> int | None:
        """Returns the worker that an utterance must wait for; None: any.

        Items are complete, so any worker will do when the home is down. The same holds when it is
        busy, unless its state saves decoding everything again.
        """
        index = self._homes.of(utterance)
        if index is None or not self._workers[index].is_ready:
            return None
        is_bound = index not in self._calls or (
            self._info is not None and self._info.is_incremental
        )
        return index if is_bound else None

    def _wake_for(self, utterance: str) -> None:
        """Wakes a worker that can take the utterance, which is its home or the idle one with the
        fewest utterances."""
        home = self._home(utterance)
        if home is not None:
            self._wake[home].set()
            return
        ready = [index for index in self._idle if self._workers[index].is_ready]
        if not ready:
            self._wake_all()
            return
        open_: Counter[int] = self._homes.count()
        index = min(ready, key=lambda i: (open_[i], i))
        self._idle.discard(index)
        self._wake[index].set()

    def _wake_all(self) -> None:
        for event in self._wake:
            event.set()
