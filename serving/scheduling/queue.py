"""Queue of ASR requests, most urgent first, and the choice of what goes into one call."""

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from core.errors import EarshotError
from engines.base import AsrItem, AsrResult
from serving.scheduling.cost_model import BatchCostModel
from serving.scheduling.priority import DROPPABLE, DecodePriority

WorkerLookup = Callable[[str], int | None]
"Function that returns the worker that an utterance must wait for; None: any worker."


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """One request, until a worker takes it."""

    priority: DecodePriority
    order: int
    "Order of arrival. A request that replaces an older one inherits its order."
    item: AsrItem
    answer: asyncio.Future[AsrResult]
    "Gets the result or the error."
    since: float
    "Clock time of its arrival, in seconds."
    deadline: asyncio.Timeout
    "Time limit for a worker to begin."

    def is_late(self, now: float) -> bool:
        """True if the caller has left or has its answer, or the deadline has passed. `now`: loop
        time in seconds."""
        when = self.deadline.when()
        return self.answer.done() or (when is not None and when <= now)

    def fail(self, error: EarshotError) -> None:
        """Answers with an error. Does nothing if there is an answer already, or the caller has
        left."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # counts as seen: its caller may be leaving just now


class RequestQueue:
    """Requests of one model that no worker has taken yet, sorted by priority and arrival."""

    def __init__(self) -> None:
        self._waiting: list[QueuedRequest] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[QueuedRequest]:
        return iter(self._waiting)

    def add(self, waiting: QueuedRequest) -> None:
        """Inserts a request at its place."""
        insort(self._waiting, waiting, key=lambda w: (w.priority, w.order))

    def discard(self, waiting: QueuedRequest) -> None:
        """Removes a request, if it is there."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def holds(self, utterance: str) -> bool:
        """True if a request of this utterance waits."""
        return any(w.item.utterance == utterance for w in self._waiting)

    def promote(self, utterance: str, until: float) -> None:
        """Turns the utterance's speculative requests into finals. `until`: their new deadline, in
        loop time."""
        for waiting in [w for w in self._waiting if w.item.utterance == utterance]:
            if waiting.priority is DecodePriority.SPECULATIVE and not waiting.answer.done():
                self._waiting.remove(waiting)
                waiting.priority = DecodePriority.FINAL
                waiting.deadline.reschedule(until)
                self.add(waiting)

    def least_urgent(self) -> QueuedRequest:
        """Returns the last request. The queue must not be empty."""
        return self._waiting[-1]

    def ahead_of(self, priority: DecodePriority) -> Counter[DecodePriority]:
        """Returns how many requests of each priority a new one would have to wait for."""
        return Counter(w.priority for w in self._waiting if w.priority <= priority)

    def replaced_by(self, utterance: str, priority: DecodePriority) -> list[QueuedRequest]:
        """Removes and returns the requests that a newer one of the same utterance makes stale."""
        stale = [
            w
            for w in self._waiting
            if w.item.utterance == utterance and w.priority in DROPPABLE and w.priority >= priority
        ]
        for waiting in stale:
            self._waiting.remove(waiting)
        return stale

    def take(
        self,
        worker: int,
        home_of: WorkerLookup,
        now: float,
        max_batch: int,
        costs: BatchCostModel,
        free: int,
    ) -> list[QueuedRequest]:
        """Removes and returns what a free worker computes next in one call; empty if there is
        nothing for it.

        `worker`: its index. `home_of`: finds the worker that an utterance is bound to. `now`: loop
        time. `costs`: limits the size of the batch. `free`: number of other idle workers, which get
        their share of the requests that are bound to no worker.
        """
        fresh = [w for w in self._waiting if not w.is_late(now)]
        homes = [(w, home_of(w.item.utterance)) for w in fresh]
        mine = [w for w, home in homes if home in (None, worker)]
        loose = sum(home is None for _, home in homes)
        # All requests that are bound to this worker, and its share of the unbound ones, rounded up.
        share = len(mine) - loose + -(-loose // (1 + free))
        batch = choose_batch(mine, min(max_batch, share), costs)
        if len(batch) == 1 < min(share, max_batch):  # alone only because of the measured costs
            costs.doubt()
        for waiting in batch:
            self._waiting.remove(waiting)
        return batch


def choose_batch(
    waiting: Sequence[QueuedRequest], max_batch: int, costs: BatchCostModel
) -> list[QueuedRequest]:
    """Returns the first request, and those that share its call. `waiting`: sorted by urgency.

    Requests of the same priority come first. Less urgent live work joins if it costs the others
    next to nothing. BATCH work never shares a call with live work.
    """
    if not waiting:
        return []
    first = waiting[0].priority
    equals = [w for w in waiting if w.priority is first]
    batch = equals[: costs.size(first, max_batch)]
    if len(batch) < len(equals):  # full: the rest of the equals goes before less urgent work
        return batch
    others = [w for w in waiting if first < w.priority < DecodePriority.BATCH]
    return batch + others[: min(costs.joiners(max_batch), max_batch - len(batch))]
