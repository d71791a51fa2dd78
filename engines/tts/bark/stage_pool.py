"""Pool of one stage: threads that each compute a batch of items, step by step.

Items join and leave between two steps. The pools compute at the same time, because torch releases
the interpreter's lock during its operations.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Generic, Protocol, TypeVar

from engines.base.voice import StageTime

ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
ItemT = TypeVar("ItemT")
"Type of the items, which also take the results."


class StageWorker(Protocol[ItemT_contra]):
    """Computes a batch of items. Only one thread uses it."""

    slots: int
    "Number of items that may run."

    def start(self, item: ItemT_contra) -> int:
        """Adds an item, and returns its number. At most `slots` items run."""
        ...

    def step(self) -> Sequence[int]:
        """Computes one step of all items, and returns the numbers of those that are complete: their
        slots are free. Blocking."""
        ...

    def cancel(self, number: int) -> None:
        """Ends an item and frees its slot."""
        ...


@dataclass(eq=False, slots=True)
class _PoolJob(Generic[ItemT]):
    """An item in the pool, with the future of its caller."""

    item: ItemT
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]
    seat: "_Seat[ItemT] | None" = None
    "Thread that computes it; None while it waits."
    queued_at_s: float = field(default_factory=time.monotonic)
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    steps: int = 0
    rows: int = 0
    "Sum of the batch sizes of its steps."


@dataclass(eq=False, slots=True)
class _Seat(Generic[ItemT]):
    """One thread of the pool, as the event loop sees it."""

    slots: int
    inbox: "SimpleQueue[tuple[_PoolJob[ItemT], bool] | None]" = field(default_factory=SimpleQueue)
    "Jobs to start (True) or to cancel (False); None ends the thread."
    taken: int = 0
    "Slots that are taken, until the thread says that they are free."


class StagePool(Generic[ItemT]):
    """Runs items through one stage. All methods are called in one event loop.

    An item waits in one queue, the longest first, and goes to the thread with the fewest items.
    The queue has no limit of its own: each speech has at most one item in all pools.
    """

    def __init__(
        self,
        name: str,
        workers: Sequence[StageWorker[ItemT]],
        on_time: Callable[[StageTime], None],
    ) -> None:
        """Starts a thread for each worker. `on_time`: is called with the times of each item that
        was computed."""
        self.name = name
        self._on_time = on_time
        self._waiting: deque[_PoolJob[ItemT]] = deque()
        self._seats: list[_Seat[ItemT]] = [_Seat(worker.slots) for worker in workers]
        self._threads = [
            # Not waited for at the interpreter's end: a step may take seconds.
            Thread(target=self._serve, args=pair, name=f"{name}-{number}", daemon=True)
            for number, pair in enumerate(zip(self._seats, workers, strict=True))
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, item: ItemT) -> None:
        """Computes an item. Cancelling the call frees its slot before the next step. Raises what
        the worker raised; then all items of its batch are lost."""
        loop = asyncio.get_running_loop()
        job = _PoolJob(item, loop, loop.create_future())
        self._waiting.append(job)
        self._assign()
        try:
            await job.done
        except asyncio.CancelledError:
            if job.seat is None:
                self._waiting.remove(job)
            else:
                job.seat.inbox.put((job, False))
            raise
        queue_s, compute_s = job.started_at_s - job.queued_at_s, job.ended_at_s - job.started_at_s
        self._on_time(StageTime(self.name, queue_s, compute_s, job.rows / max(1, job.steps)))

    async def aclose(self) -> None:
        """Ends the threads after their present steps."""
        for seat in self._seats:
            seat.inbox.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _assign(self) -> None:
        """Gives waiting jobs to the threads with free slots."""
        while self._waiting:
            seat = min(self._seats, key=lambda one: one.taken / one.slots)
            if seat.taken >= seat.slots:
                return
            job = self._waiting.popleft()
            seat.taken += 1
            job.seat = seat
            seat.inbox.put((job, True))

    def _free(self, job: _PoolJob[ItemT], error: Exception | None) -> None:
        """Notes that a job has left its thread."""
        assert job.seat is not None
        job.seat.taken -= 1
        if not job.done.done():
            if error is None:
                job.done.set_result(None)
            else:
                job.done.set_exception(error)
        self._assign()

    def _serve(self, seat: _Seat[ItemT], worker: StageWorker[ItemT]) -> None:
        """Computes steps while there are items. Runs in a thread."""
        running: dict[int, _PoolJob[ItemT]] = {}

        def leave(numbers: Sequence[int], error: Exception | None = None) -> None:
            for number in numbers:
                job = running.pop(number)
                job.ended_at_s = time.monotonic()
                job.loop.call_soon_threadsafe(self._free, job, error)

        while True:
            while not running or not seat.inbox.empty():
                message = seat.inbox.get()
                if message is None:
                    return
                job, is_new = message
                try:
                    if is_new:
                        job.started_at_s = time.monotonic()
                        running[worker.start(job.item)] = job
                    else:
                        _cancel(worker, running, job, leave)
                except Exception as exc:
                    job.loop.call_soon_threadsafe(self._free, job, exc)
            try:
                leave(_step(worker, running))
            except Exception as exc:
                # Nothing that the batch has in memory can be trusted.
                for number in running:
                    worker.cancel(number)
                leave(list(running), exc)


def _step(worker: StageWorker[ItemT], running: Mapping[int, _PoolJob[ItemT]]) -> Sequence[int]:
    for job in running.values():
        job.steps += 1
        job.rows += len(running)
    return worker.step()


def _cancel(
    worker: StageWorker[ItemT],
    running: Mapping[int, _PoolJob[ItemT]],
    job: _PoolJob[ItemT],
    leave: Callable[[Sequence[int]], None],
) -> None:
    """Cancels a job, if it has not ended meanwhile."""
    numbers = [number for number, one in running.items() if one is job]
    for number in numbers:
        worker.cancel(number)
    leave(numbers)
