"""What calls of one model cost, learned from the calls: how many items go into one, how long a
queue takes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp

from serving.scheduling.priority import DecodePriority

ITEM_WEIGHT = 0.2
"Of a new sample: items differ in length, so some ten of them make the mean."

EXTRA_WEIGHT = 0.5
"Of a new sample: two bad batches are enough to stop making them."

DOUBT = 0.99
"Per lone call with others waiting: after some seventy of them a larger batch is tried again."

WORTH_IT = 0.5
"""Extra cost up to which equals share a call. n in one call end at 1 + extra * (n - 1), one after
the other at (n + 1) / 2 on average: this is where the two are the same, for any n."""

JOIN_DELAY = 0.25
"Of a lone item's time: how much less urgent items may delay the more urgent in their call."

BATCH_DELAY = 0.5
"Of a lone item's time: how much longer a call of BATCH items may be than one item."

UNMEASURED_BATCH = 2
"BATCH items in a call while `extra` is unknown: the smallest number that shows it."


class BatchCostModel:
    """A call of n items is taken to cost 1 + extra * (n - 1) lone items.

    On a GPU `extra` is near 0, on a CPU near 1. A lone item's cost is kept by priority: a partial
    is shorter than a file.
    """

    def __init__(self) -> None:
        self._lone_s: dict[DecodePriority, float] = {}
        self._lone_calls: Counter[DecodePriority] = Counter()
        self.extra: float | None = None
        "What a further item adds to a call, as a share of a lone one; None until measured."

    def observe(self, call: Sequence[DecodePriority], seconds: float) -> None:
        """A call with items of these priorities took so long."""
        others = len(call) - 1
        if others == 0:
            self._learn_lone(call[0], seconds)
            return
        expected_s = self._mean_s(call)
        if expected_s > 0 and all(priority in self._lone_s for priority in call):
            seen = min(max((seconds / expected_s - 1) / others, 0.0), 1.0)
            self.extra = seen if self.extra is None else _mix(self.extra, seen, EXTRA_WEIGHT)

    def doubt(self) -> None:
        """An item went alone because company was dear: believe that a little less."""
        if self.extra is not None:
            self.extra *= DOUBT

    def size(self, priority: DecodePriority, max_batch: int) -> int:
        """How many items of this priority one call takes.

        The first goes alone, to be measured. Equals among live work share a call where that does
        not delay their mean. A call of BATCH items stays about as short as one item, for a final
        may come while it runs.
        """
        if priority not in self._lone_s:
            return 1
        if priority is not DecodePriority.BATCH:
            dear = self.extra is not None and self.extra > WORTH_IT
            return 1 if dear else max_batch
        if self.extra is None:
            return min(UNMEASURED_BATCH, max_batch)
        return min(1 + self._fit(BATCH_DELAY, max_batch), max_batch)

    def joiners(self, max_batch: int) -> int:
        """How many less urgent live items may join a call."""
        return max_batch if self.extra is None else self._fit(JOIN_DELAY, max_batch)

    def call_s(self, call: Sequence[DecodePriority]) -> float:
        """Expected; 0 while nothing is known."""
        return self._mean_s(call) * self._times(len(call))

    def queue_s(self, waiting: Mapping[DecodePriority, int], max_batch: int) -> float:
        """Expected time of one worker for all that waits; 0 while nothing is known."""
        total_s = 0.0
        for priority, count in waiting.items():
            size = self.size(priority, max_batch)
            full, rest = divmod(count, size)
            times = full * self._times(size) + (self._times(rest) if rest else 0.0)
            total_s += times * self.one_s(priority)
        return total_s

    def one_s(self, priority: DecodePriority) -> float:
        """Of a lone item; 0 while nothing is known."""
        return self._lone_s.get(priority, max(self._lone_s.values(), default=0.0))

    def _learn_lone(self, priority: DecodePriority, seconds: float) -> None:
        """The first is cold and says little: the second replaces it."""
        self._lone_calls[priority] += 1
        weight = ITEM_WEIGHT if self._lone_calls[priority] > 2 else 1.0
        self._lone_s[priority] = _mix(self._lone_s.get(priority, 0.0), seconds, weight)

    def _fit(self, delay: float, most: int) -> int:
        return most if not self.extra else min(int(delay / self.extra), most)

    def _times(self, count: int) -> float:
        """Lone items that a call of so many costs; as many as there are while nothing is known."""
        return 1 + (1.0 if self.extra is None else self.extra) * (count - 1)

    def _mean_s(self, call: Sequence[DecodePriority]) -> float:
        return sum(map(self.one_s, call)) / len(call)


def _mix(before: float, new: float, weight: float) -> float:
    return before + weight * (new - before)


# How busy a model's workers have lately been, by priority: what partials may still take. Pure.

MEMORY_S = 5.0
"Work this long ago counts by 1/e: about one utterance with its pause."

PARTIAL_SHARE = 1 / 3
"Of the workers' time, at most, for words that will be recognised again."

LIVE_ROOM = 0.6
"Above it queues grow: partials fill up to here what finals and speculation leave."


class WorkerLoad:
    """`add` what calls took; shares are of all workers' time together, 0 to 1."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._busy_s = dict.fromkeys(DecodePriority, 0.0)
        self._at = 0.0

    def add(self, call: Iterable[DecodePriority], seconds: float, now: float) -> None:
        """A call took so long; its items share that."""
        priorities = list(call)
        self._forget(now)
        for priority in priorities:
            self._busy_s[priority] += seconds / len(priorities)

    def has_room_for_partial(self, now: float, soon_s: float) -> bool:
        """Whether another partial leaves the others their room. `soon_s`: what partials that wait
        or run, and this one, are expected to take."""
        self._forget(now)
        urgent = self._share(
            self._busy_s[DecodePriority.FINAL] + self._busy_s[DecodePriority.SPECULATIVE]
        )
        partial = self._share(self._busy_s[DecodePriority.PARTIAL] + soon_s)
        return partial <= min(PARTIAL_SHARE, LIVE_ROOM - urgent)

    def _share(self, busy_s: float) -> float:
        return busy_s / (MEMORY_S * self._workers)

    def _forget(self, now: float) -> None:
        left = exp((self._at - now) / MEMORY_S)
        for priority in self._busy_s:
            self._busy_s[priority] *= left
        self._at = now
