"""Queue of requests for one model, most urgent first, and the choice of what goes into one call."""

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic

from core.errors import EarshotError
from serving.scheduling.cost_model import BatchCostModel
from serving.scheduling.policy import ItemT, PriorityRule, ResultT

WorkerLookup = Callable[[str | None], int | None]
"Function that returns the index of the worker that a sequence must wait for; None: any worker."


@dataclass(eq=False, slots=True)
class QueuedRequest(Generic[ItemT, ResultT]):
    """One request, until a worker takes it."""

    priority: IntEnum
    order: int
    "Order of arrival. A request that replaces an older one inherits its order."
    item: ItemT
    sequence: str | None
    "Id of the sequence that the item belongs to; None: it stands alone."
    is_last: bool
    "True: the item ends its sequence."
    result: asyncio.Future[ResultT]
    "Gets the result or the error."
    arrived_s: float
    "Clock time of its arrival."
    deadline: asyncio.Timeout
    "Time limit for a worker to begin."

    def is_late(self, now_s: float) -> bool:
        """True if the caller has left or has its result, or the deadline has passed. `now_s`: loop
        time."""
        when_s = self.deadline.when()
        return self.result.done() or (when_s is not None and when_s <= now_s)

    def fail(self, error: EarshotError) -> None:
        """Answers with an error. Does nothing if there is a result already, or the caller has
        left."""
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()  # counts as seen: its caller may be leaving just now


class RequestQueue(Generic[ItemT, ResultT]):
    """Requests of one model that no worker has taken yet, sorted by priority and arrival."""

    def __init__(self, rules: Mapping[IntEnum, PriorityRule]) -> None:
        """Creates an empty queue. `rules`: the rule of each priority."""
        self._rules = rules
        self._requests: list[QueuedRequest[ItemT, ResultT]] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[QueuedRequest[ItemT, ResultT]]:
        return iter(self._requests)

    def add(self, request: QueuedRequest[ItemT, ResultT]) -> None:
        """Inserts a request at its place."""
        insort(self._requests, request, key=lambda r: (r.priority, r.order))

    def discard(self, request: QueuedRequest[ItemT, ResultT]) -> None:
        """Removes a request, if it is there."""
        if request in self._requests:
            self._requests.remove(request)

    def holds(self, sequence: str) -> bool:
        """True if a request of this sequence waits."""
        return any(r.sequence == sequence for r in self._requests)

    def promote(self, sequence: str, now_s: float) -> None:
        """Raises the priority of the sequence's requests, if their rule names another priority.
        They get its deadline, counted from `now_s` in loop time."""
        for request in [r for r in self._requests if r.sequence == sequence]:
            priority = self._rules[request.priority].promoted_to
            if priority is not None and not request.result.done():
                self._requests.remove(request)
                request.priority = priority
                request.deadline.reschedule(now_s + self._rules[priority].deadline_s)
                self.add(request)

    def least_urgent(self) -> QueuedRequest[ItemT, ResultT]:
        """Returns the last request. The queue must not be empty."""
        return self._requests[-1]

    def ahead_of(self, priority: IntEnum) -> Counter[IntEnum]:
        """Returns how many requests of each priority a new one would have to wait for."""
        return Counter(r.priority for r in self._requests if r.priority <= priority)

    def pop_replaced(
        self, sequence: str | None, priority: IntEnum
    ) -> list[QueuedRequest[ItemT, ResultT]]:
        """Removes and returns the requests that a newer one of the same sequence makes stale."""
        if sequence is None:
            return []
        stale = [
            r
            for r in self._requests
            if r.sequence == sequence
            and r.priority >= priority
            and self._rules[r.priority].is_droppable
        ]
        for request in stale:
            self._requests.remove(request)
        return stale

    def take(
        self,
        worker: int,
        worker_of: WorkerLookup,
        now_s: float,
        max_batch: int,
        costs: BatchCostModel,
        idle_others: int,
    ) -> list[QueuedRequest[ItemT, ResultT]]:
        """Removes and returns what an idle worker computes next in one call; empty if there is
        nothing for it.

        `worker`: its index (the scheduler passes that of a lane). `worker_of`: finds the worker
        that a sequence is bound to. `now_s`: loop time. `costs`: limits the size of the batch.
        `idle_others`: number of other idle workers, which get their share of the requests that are
        bound to no worker."""
        fresh = [r for r in self._requests if not r.is_late(now_s)]
        bound_to = [(r, worker_of(r.sequence)) for r in fresh]
        eligible = [r for r, bound in bound_to if bound in (None, worker)]
        unbound = sum(bound is None for _, bound in bound_to)
        # All requests that are bound to this worker, and its share of the unbound ones, rounded up.
        share = len(eligible) - unbound + -(-unbound // (1 + idle_others))
        batch = choose_batch(eligible, min(max_batch, share), costs, self._rules)
        if len(batch) == 1 < min(share, max_batch):  # alone only because of the measured costs
            costs.decay()
        for request in batch:
            self._requests.remove(request)
        return batch


def choose_batch(
    requests: Sequence[QueuedRequest[ItemT, ResultT]],
    max_batch: int,
    costs: BatchCostModel,
    rules: Mapping[IntEnum, PriorityRule],
) -> list[QueuedRequest[ItemT, ResultT]]:
    """Returns the first request, and those that share its call. `requests`: sorted by urgency.

    Requests of the same priority come first. Less urgent work joins if it costs the others next to
    nothing. Bulk work shares a call with bulk work of the same priority only.
    """
    if not requests:
        return []
    first = requests[0].priority
    equals = [r for r in requests if r.priority == first]
    batch = equals[: costs.batch_size(first, max_batch)]
    # If the call is full, the rest of the equals goes before less urgent work.
    if len(batch) < len(equals) or rules[first].is_bulk:
        return batch
    others = [r for r in requests if r.priority > first and not rules[r.priority].is_bulk]
    return batch + others[: min(costs.max_joiners(max_batch), max_batch - len(batch))]
