"""Scheduler of one model of any kind for all sessions and requests: priorities, micro-batches,
cancellation.

A lone request is never delayed to wait for others: a worker that becomes free takes the most urgent
waiting requests. The costs of calls decide how many go into one call, and which are refused.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic

from core.errors import EarshotError, EngineCrashed, EngineError, EngineMissing, EngineTimeout
from core.ports import Clock, Metrics
from serving.scheduling.admission import AdmissionControl
from serving.scheduling.affinity import WorkerAffinity
from serving.scheduling.cost_model import BatchCostModel, WorkerLoad
from serving.scheduling.policy import (
    BatchModelInfo,
    BatchWorker,
    ItemT,
    ResultT,
    SchedulingPolicy,
)
from serving.scheduling.queue import QueuedRequest, RequestQueue
from serving.scheduling.statistics import CallStatistics

logger = logging.getLogger(__name__)

ADMIT_SHARE = 0.5
"""Part of the wait limit that `Scheduler.admit` applies, before work of many requests. Work that
has begun should not be refused half-way."""


@dataclass(frozen=True, slots=True)
class _WorkerCall(Generic[ItemT, ResultT]):
    """The call that a lane computes now."""

    batch: Sequence[QueuedRequest[ItemT, ResultT]]
    began_s: float
    "Clock time of its start."
    timeout: asyncio.Timeout
    "Timeout that ends the call early when it is rescheduled."

    @property
    def priorities(self) -> list[IntEnum]:
        """Priorities of the call's items."""
        return [request.priority for request in self.batch]


class Scheduler(Generic[ItemT, ResultT]):
    """Shares the workers of one model among all callers.

    A lane is one call that a worker computes at a time. A worker with several lanes computes
    several calls at once, of one item each: a late request joins those that run already, and one
    that is cancelled leaves at once.

    Example:
        scheduler: Scheduler[AsrItem, AsrResult] = Scheduler(
            workers, ASR_SCHEDULING, clock, metrics
        )
        task = tasks.create_task(scheduler.run())       # owns the scheduler's tasks
        info = await scheduler.ready()                  # the model is loaded
        result = await scheduler.submit(AsrItem("u1", pcm, is_final=True), DecodePriority.FINAL)
    """

    def __init__(
        self,
        workers: Sequence[BatchWorker[ItemT, ResultT]],
        policy: SchedulingPolicy[ItemT],
        clock: Clock,
        metrics: Metrics,
        *,
        lanes: int = 1,
    ) -> None:
        """Creates the scheduler; `run` starts it. `lanes`: number of calls that each worker
        computes at once."""
        self._workers, self._policy, self._lanes = workers, policy, lanes
        self._clock, self._metrics = clock, metrics
        self._queue: RequestQueue[ItemT, ResultT] = RequestQueue(policy.rules)
        self._costs = BatchCostModel(policy.rules)
        self._load = WorkerLoad(policy.rules, len(workers) * lanes)
        self._affinity = WorkerAffinity()
        "Lane of each sequence of which a worker keeps state."
        self._admission: AdmissionControl[ItemT, ResultT] = AdmissionControl(
            self._queue, policy, self.expected_wait_s, metrics
        )
        self._wakeups = [asyncio.Event() for _ in range(len(workers) * lanes)]
        "Event that wakes a lane, by the lane's index."
        self._idle: set[int] = set()
        "Lanes that wait to be woken."
        self._calls: dict[int, _WorkerCall[ItemT, ResultT]] = {}
        "Present call by lane."
        self._last_order = 0
        self.statistics = CallStatistics()
        "Numbers and times of requests since the model was loaded."
        self._info: BatchModelInfo | None = None
        self._has_stopped = False

    @property
    def waiting(self) -> int:
        """Number of requests that no worker has taken yet."""
        return len(self._queue)

    @property
    def open_sequences(self) -> int:
        """Number of sequences for which a worker keeps state."""
        return len(self._affinity)

    async def run(self) -> None:
        """Serves until it is cancelled. Raises EngineMissing when the model cannot be loaded at
        all."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._start(0, tasks)
                for index in range(1, len(self._workers)):
                    tasks.create_task(
                        self._run_further_worker(index), name=f"{self._policy.kind}-further-{index}"
                    )
        finally:
            self._has_stopped = True
            for request in self._queue:
                request.fail(self._unloaded_error())

    async def ready(self) -> BatchModelInfo:
        """Waits until the first worker has loaded the model, and returns its properties. Further
        workers join when they have loaded it, too."""
        self._info = await self._workers[0].ready()
        return self._info

    def admit(self, priority: IntEnum) -> None:
        """Checks that work of many requests, such as a recording, is accepted now. Raises
        OverloadedError."""
        self._admission.check(priority, ADMIT_SHARE)

    async def submit(
        self, item: ItemT, priority: IntEnum, *, deadline_s: float | None = None
    ) -> ResultT:
        """Has one item computed when its turn comes, and returns the result. Cancelling the call
        gives up its place.

        `deadline_s`: seconds within which a worker must begin; None: those of the priority's rule.
        Raises EngineError (EngineCrashed, EngineTimeout); OverloadedError when the expected wait is
        too long; SupersededError when a newer request of the sequence replaces a droppable one.
        """
        if deadline_s is None:
            deadline_s = self._policy.rules[priority].deadline_s
        if self._has_stopped:
            raise self._unloaded_error()
        sequence = self._policy.sequence_of(item)
        order = self._admission.replace_older(sequence, priority)
        if order is None:  # a request that replaces another has been admitted with that
            self._check_ration(priority)
            self._admission.check(priority)
            self._admission.make_room(priority)
            self._last_order = order = self._last_order + 1
        request: QueuedRequest[ItemT, ResultT] = QueuedRequest(
            priority=priority,
            order=order,
            item=item,
            sequence=sequence,
            is_last=self._policy.is_last(item),
            result=asyncio.get_running_loop().create_future(),
            arrived_s=self._clock.now(),
            deadline=asyncio.timeout(deadline_s),
        )
        try:
            async with request.deadline:
                self._queue.add(request)
                self._wake_for(sequence)
                return await request.result
        except TimeoutError:
            waited_s = self._clock.now() - request.arrived_s
            raise self._admission.expired(request.priority, waited_s, self._name) from None
        finally:
            self._queue.discard(request)
            if self._lanes > 1 and request.result.cancelled():
                self._end_abandoned_call(request)

    def promote(self, sequence: str) -> None:
        """Raises the priority of the sequence's waiting requests as their rule says. Used for
        speculative work, for example, when its result is needed after all."""
        self._queue.promote(sequence, asyncio.get_running_loop().time())

    def forget(self, sequence: str) -> None:
        """Frees what a worker keeps for a sequence that was cancelled."""
        lane = self._affinity.release(sequence)
        if lane is not None:
            self._worker(lane).forget(sequence)

    def expected_wait_s(self, priority: IntEnum) -> float:
        """Returns the expected seconds until a worker takes a new request of this priority; 0 while
        nothing has been measured."""
        # while no worker has loaded, all are expected to
        ready = sum(worker.is_ready for worker in self._workers) or len(self._workers)
        ahead = self._queue.ahead_of(priority)
        max_batch = self._max_batch(self._info) if self._info else 1
        queue_s = self._costs.queue_s(ahead, max_batch)
        return self._until_free_s() + queue_s / (ready * self._lanes)

    def _worker(self, lane: int) -> BatchWorker[ItemT, ResultT]:
        return self._workers[lane // self._lanes]

    def _max_batch(self, info: BatchModelInfo) -> int:
        # With several lanes each call has one item, so that each request can be cancelled.
        return info.max_batch if self._lanes == 1 else 1

    def _end_abandoned_call(self, request: QueuedRequest[ItemT, ResultT]) -> None:
        """Ends a worker's call if no caller waits for any of its items any more."""
        for call in self._calls.values():
            if request in call.batch and all(member.result.done() for member in call.batch):
                call.timeout.reschedule(asyncio.get_running_loop().time())

    def _check_ration(self, priority: IntEnum) -> None:
        """Raises OverloadedError for a rationed request that would take time that others need.

        An incremental model is exempt: its partial results are the work itself, and its final
        result is then quick.
        """
        if not self._policy.rules[priority].is_rationed:
            return
        if self._info is not None and self._info.is_incremental:
            return
        running = sum(call.priorities.count(priority) for call in self._calls.values())
        count = 1 + running + self._queue.ahead_of(priority)[priority]
        soon_s = count * self._costs.item_s(priority)
        if not self._load.has_room_for_rationed(self._clock.now(), soon_s):
            raise self._admission.ration_used_up(priority)

    def _until_free_s(self) -> float:
        """Returns the expected seconds until the first lane is free."""
        if self._free_lanes():
            return 0.0
        now_s = self._clock.now()
        left_s = [
            self._costs.call_s(call.priorities) - (now_s - call.began_s)
            for call in self._calls.values()
        ]
        return max(0.0, min(left_s, default=0.0))

    @property
    def _name(self) -> str:
        return self._info.name if self._info else self._policy.kind

    def _unloaded_error(self) -> EngineCrashed:
        return EngineCrashed(self._policy.kind, self._name, "the model is being unloaded")

    def _start(self, index: int, tasks: asyncio.TaskGroup) -> None:
        kind = self._policy.kind
        tasks.create_task(self._workers[index].run(), name=f"{kind}-worker-{index}")
        for lane in range(index * self._lanes, (index + 1) * self._lanes):
            tasks.create_task(self._serve(lane), name=f"{kind}-lane-{lane}")

    async def _run_further_worker(self, index: int) -> None:
        """Runs a worker other than the first.

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

    async def _serve(self, lane: int) -> None:
        """Computes one call after the other in one lane."""
        worker = self._worker(lane)
        info = await worker.ready()
        while True:
            if not worker.is_ready:
                # another worker may take the request for which this lane was woken
                self._wake_all()
            try:
                info = await worker.ready()
            except EngineCrashed as error:
                self._fail_all_if_down(error)
                continue
            batch = self._take(lane, self._max_batch(info))
            if batch:
                await self._compute(lane, batch)
            else:
                self._idle.add(lane)
                self._wakeups[lane].clear()
                await self._wakeups[lane].wait()
                self._idle.discard(lane)

    def _fail_all_if_down(self, error: EngineCrashed) -> None:
        """Fails all waiting requests if this worker cannot be restarted now and no other worker is
        ready."""
        if not any(worker.is_ready for worker in self._workers):
            for request in self._queue:
                request.fail(error)

    def _take(self, lane: int, max_batch: int) -> list[QueuedRequest[ItemT, ResultT]]:
        """Takes the next batch of a lane out of the queue."""
        idle_others = len([other for other in self._free_lanes() if other != lane])
        now_s = asyncio.get_running_loop().time()
        batch = self._queue.take(lane, self._bound_lane, now_s, max_batch, self._costs, idle_others)
        for request in batch:
            request.deadline.reschedule(None)  # it has begun; the worker has its own time limit
            if request.sequence is not None:
                self._assign(lane, request.sequence, is_last=request.is_last)
        return batch

    def _assign(self, lane: int, sequence: str, *, is_last: bool) -> None:
        """Notes that the lane's worker keeps the state of the sequence from now on. Another worker
        that kept it may drop it."""
        if self._affinity.worker_of(sequence) not in (None, lane):
            self.forget(sequence)
        if not is_last:
            for dropped, other in self._affinity.assign(sequence, lane):
                self._worker(other).forget(dropped)

    def _free_lanes(self) -> list[int]:
        """Returns the lanes whose worker is ready and that compute nothing."""
        ready = [worker.is_ready for worker in self._workers]
        return [
            lane
            for lane in range(len(self._wakeups))
            if ready[lane // self._lanes] and lane not in self._calls
        ]

    async def _compute(self, lane: int, batch: Sequence[QueuedRequest[ItemT, ResultT]]) -> None:
        """Computes one batch in a lane, and answers its requests."""
        kind, timeout = self._policy.kind, asyncio.timeout(None)
        call = self._calls[lane] = _WorkerCall(batch, self._clock.now(), timeout)
        waits_s = [call.began_s - request.arrived_s for request in batch]
        for request, wait_s in zip(batch, waits_s, strict=True):
            self._metrics.observe(
                f"earshot_{kind}_queue_seconds", wait_s, priority=request.priority.name.lower()
            )
        self._metrics.observe(f"earshot_{kind}_batch_size", len(batch))
        try:
            async with timeout:
                results = await self._worker(lane).decode([request.item for request in batch])
        except TimeoutError:  # `_end_abandoned_call` ended the call: no caller waits for its items
            self._update_affinity(lane, batch)
        except EngineError as error:
            self.statistics.failed(waits_s, self._clock.now() - call.began_s)
            self._fail_batch(lane, batch, error)
        else:
            took_s = self._clock.now() - call.began_s
            self._metrics.observe(f"earshot_{kind}_compute_seconds", took_s, batch=str(len(batch)))
            now_ms = round(1000 * self._clock.wall().timestamp())
            self.statistics.succeeded(waits_s, took_s, now_ms)
            self._costs.observe(call.priorities, took_s)
            self._load.add(call.priorities, took_s, self._clock.now())
            for request, result in zip(batch, results, strict=True):
                if not request.result.done():
                    request.result.set_result(result)
            self._update_affinity(lane, batch)
        finally:
            del self._calls[lane]
            for request in batch:  # only requests without a result: the scheduler is cancelled
                request.fail(self._unloaded_error())

    def _fail_batch(
        self, lane: int, batch: Sequence[QueuedRequest[ItemT, ResultT]], error: EngineError
    ) -> None:
        """Fails the requests of a call that ended with an error."""
        logger.warning("! %s: %d request(s) lost (%s)", error, len(batch), error.code)
        self._metrics.count("earshot_errors", code=error.code)
        for request in batch:
            request.fail(error)
        if isinstance(error, (EngineCrashed, EngineTimeout)):  # its process and state are gone
            self._affinity.drop_worker(lane)
        else:
            self._update_affinity(lane, batch)

    def _update_affinity(self, lane: int, batch: Sequence[QueuedRequest[ItemT, ResultT]]) -> None:
        """Updates the affinity after a call.

        Engines drop finished sequences themselves. A cancelled sequence is forgotten, unless it
        goes on: its last item may follow a cancelled one.
        """
        for request in batch:
            sequence = request.sequence
            if sequence is None:
                continue
            if request.is_last:
                self._affinity.release(sequence)
            elif request.result.cancelled() and not self._queue.holds(sequence):
                self.forget(sequence)

    def _bound_lane(self, sequence: str | None) -> int | None:
        """Returns the lane that a sequence must wait for; None: any.

        Items are complete, so any worker will do when the one that keeps the sequence is down. The
        same holds when it is busy, unless its state saves computing everything again.
        """
        lane = self._affinity.worker_of(sequence)
        if lane is None or not self._worker(lane).is_ready:
            return None
        is_bound = lane not in self._calls or (self._info is not None and self._info.is_incremental)
        return lane if is_bound else None

    def _wake_for(self, sequence: str | None) -> None:
        """Wakes a lane that can take the sequence: the one that keeps it, or the idle one that
        keeps the fewest."""
        lane = self._bound_lane(sequence)
        if lane is not None:
            self._wakeups[lane].set()
            return
        ready_lanes = [candidate for candidate in self._idle if self._worker(candidate).is_ready]
        if not ready_lanes:
            self._wake_all()
            return
        kept_sequences: Counter[int] = self._affinity.count_by_worker()
        chosen_lane = min(ready_lanes, key=lambda candidate: (kept_sequences[candidate], candidate))
        self._idle.discard(chosen_lane)
        self._wakeups[chosen_lane].set()

    def _wake_all(self) -> None:
        for event in self._wakeups:
            event.set()
