"""Who waits for a recognition worker, most urgent first, and what one call takes of it."""

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
"Utterance -> the worker that it is bound to."


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """One request, until a worker takes it."""

    priority: DecodePriority
    order: int
    "Of arrival; one that replaces an older inherits its place."
    item: AsrItem
    answer: asyncio.Future[AsrResult]
    since: float
    deadline: asyncio.Timeout

    def is_late(self, now: float) -> bool:
        """Nobody wants the answer any more, or its deadline has passed. `now` in loop time."""
        when = self.deadline.when()
        return self.answer.done() or (when is not None and when <= now)

    def fail(self, error: EarshotError) -> None:
        """Nothing when it has its answer, or nobody wants one."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # counts as seen: its caller may be leaving just now


class RequestQueue:
    """The requests of one model that no worker has taken."""

    def __init__(self) -> None:
        self._waiting: list[QueuedRequest] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[QueuedRequest]:
        return iter(self._waiting)

    def add(self, waiting: QueuedRequest) -> None:
        insort(self._waiting, waiting, key=lambda w: (w.priority, w.order))

    def discard(self, waiting: QueuedRequest) -> None:
        """Nothing when it is not there."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def holds(self, utterance: str) -> bool:
        return any(w.item.utterance == utterance for w in self._waiting)

    def promote(self, utterance: str, until: float) -> None:
        """Its speculative requests become finals with this deadline, in loop time."""
        for waiting in [w for w in self._waiting if w.item.utterance == utterance]:
            if waiting.priority is DecodePriority.SPECULATIVE and not waiting.answer.done():
                self._waiting.remove(waiting)
                waiting.priority = DecodePriority.FINAL
                waiting.deadline.reschedule(until)
                self.add(waiting)

    def least_urgent(self) -> QueuedRequest:
        return self._waiting[-1]

    def ahead_of(self, priority: DecodePriority) -> Counter[DecodePriority]:
        """How many of each priority a newcomer would wait for."""
        return Counter(w.priority for w in self._waiting if w.priority <= priority)

    def replaced_by(self, utterance: str, priority: DecodePriority) -> list[QueuedRequest]:
        """Take out what a newer request of the same utterance makes stale."""
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
        """What a worker that became free computes next, in one call; empty when there is nothing.

        `free` more workers have nothing to do: they get their share of what is bound to none.
        """
        fresh = [w for w in self._waiting if not w.is_late(now)]
        homes = [(w, home_of(w.item.utterance)) for w in fresh]
        mine = [w for w, home in homes if home in (None, worker)]
        loose = sum(home is None for _, home in homes)
        share = len(mine) - loose + -(-loose // (1 + free))
        batch = choose_batch(mine, min(max_batch, share), costs)
        if len(batch) == 1 < min(share, max_batch):
            costs.doubt()
        for waiting in batch:
            self._waiting.remove(waiting)
        return batch


def choose_batch(
    waiting: Sequence[QueuedRequest], max_batch: int, costs: BatchCostModel
) -> list[QueuedRequest]:
    """The first of the line, and who goes with them in one call.

    Equals first. Less urgent live work joins where it costs the others next to nothing. BATCH work
    never shares a call with live work.
    """
    if not waiting:
        return []
    first = waiting[0].priority
    equals = [w for w in waiting if w.priority is first]
    batch = equals[: costs.size(first, max_batch)]
    if len(batch) < len(equals):
        return batch
    others = [w for w in waiting if first < w.priority < DecodePriority.BATCH]
    return batch + others[: min(costs.joiners(max_batch), max_batch - len(batch))]
