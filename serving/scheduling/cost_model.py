"""Cost model of one ASR model, learned from its calls: how many items fit into one call, and how
long a queue takes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp

from serving.scheduling.priority import DecodePriority

ITEM_WEIGHT = 0.2
"""Weight of a new sample of a lone item's time. Items differ in length, so some ten samples make
the mean."""

EXTRA_WEIGHT = 0.5
"Weight of a new sample of `extra`. Two bad batches are enough to stop making them."

DOUBT = 0.99
"""Factor on `extra` for each lone call while other requests wait. After some seventy of these a
larger batch is tried again."""

WORTH_IT = 0.5
"""Largest `extra` with which items of equal priority share a call. n items in one call end at 1 +
extra * (n - 1); one after the other they end at (n + 1) / 2 on average. At this value the two are
the same, for any n."""

JOIN_DELAY = 0.25
"""Delay, as a share of a lone item's time, that less urgent items may cause the more urgent ones in
their call."""

BATCH_DELAY = 0.5
"Time, as a share of a lone item's, by which a call of BATCH items may be longer than one item."

UNMEASURED_BATCH = 2
"Number of BATCH items in a call while `extra` is unknown: the smallest number that measures it."


class BatchCostModel:
    """Predicts the time of calls. A call of n items is taken to cost 1 + extra * (n - 1) lone
    items; a lone item is one that has a call for itself.

    On a GPU `extra` is near 0, on a CPU near 1. The cost of a lone item is kept by priority,
    because a partial is shorter than a file.

    Example:
        costs = BatchCostModel()
        costs.observe([DecodePriority.FINAL], 0.3)      # one lone final took 0.3 s
        count = costs.size(DecodePriority.FINAL, 8)     # how many finals the next call takes
    """

    def __init__(self) -> None:
        self._lone_s: dict[DecodePriority, float] = {}
        self._lone_calls: Counter[DecodePriority] = Counter()
        self.extra: float | None = None
        """Cost that each further item adds to a call, as a share of a lone item, 0 to 1; None until
        measured."""

    def observe(self, call: Sequence[DecodePriority], seconds: float) -> None:
        """Records that a call with items of these priorities took `seconds`."""
        others = len(call) - 1
        if others == 0:
            self._learn_lone(call[0], seconds)
            return
        expected_s = self._mean_s(call)
        if expected_s > 0 and all(priority in self._lone_s for priority in call):
            seen = min(max((seconds / expected_s - 1) / others, 0.0), 1.0)
            self.extra = seen if self.extra is None else _mix(self.extra, seen, EXTRA_WEIGHT)

    def doubt(self) -> None:
        """Lowers `extra` a little, after an item went alone because sharing a call was too
        expensive."""
        if self.extra is not None:
            self.extra *= DOUBT

    def size(self, priority: DecodePriority, max_batch: int) -> int:
        """Returns the number of items of this priority that one call takes, 1 to max_batch.

        The first item goes alone, to be measured. Items of equal priority among live work share a
        call if that does not delay their mean end. A call of BATCH items stays about as short as
        one item, because a final may arrive while it runs.
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
        """Returns how many less urgent live items may join a call."""
        return max_batch if self.extra is None else self._fit(JOIN_DELAY, max_batch)

    def call_s(self, call: Sequence[DecodePriority]) -> float:
        """Returns the expected seconds of a call; 0 while nothing is known."""
        return self._mean_s(call) * self._times(len(call))

    def queue_s(self, waiting: Mapping[DecodePriority, int], max_batch: int) -> float:
        """Returns the expected seconds that one worker needs for all waiting requests; 0 while
        nothing is known. `waiting`: number of requests by priority."""
        total_s = 0.0
        for priority, count in waiting.items():
            size = self.size(priority, max_batch)
            full, rest = divmod(count, size)
            times = full * self._times(size) + (self._times(rest) if rest else 0.0)
            total_s += times * self.one_s(priority)
        return total_s

    def one_s(self, priority: DecodePriority) -> float:
        """Returns the expected seconds of a lone item; 0 while nothing is known."""
        return self._lone_s.get(priority, max(self._lone_s.values(), default=0.0))

    def _learn_lone(self, priority: DecodePriority, seconds: float) -> None:
        """Learns from a lone item. The first sample of a priority is cold and not typical, so the
        second replaces it."""
        self._lone_calls[priority] += 1
        weight = ITEM_WEIGHT if self._lone_calls[priority] > 2 else 1.0
        self._lone_s[priority] = _mix(self._lone_s.get(priority, 0.0), seconds, weight)

    def _fit(self, delay: float, most: int) -> int:
        return most if not self.extra else min(int(delay / self.extra), most)

    def _times(self, count: int) -> float:
        """Returns the cost of a call of `count` items, in lone items. It is `count` while nothing
        is known."""
        return 1 + (1.0 if self.extra is None else self.extra) * (count - 1)

    def _mean_s(self, call: Sequence[DecodePriority]) -> float:
        return sum(map(self.one_s, call)) / len(call)


def _mix(before: float, new: float, weight: float) -> float:
    return before + weight * (new - before)


# Recent load of a model's workers, which limits partials. Pure.

MEMORY_S = 5.0
"""Time constant in seconds: work this long ago counts by 1/e. It is about one utterance with its
pause."""

PARTIAL_SHARE = 1 / 3
"Largest share of the workers' time for partials. Their words will be recognised again."

LIVE_ROOM = 0.6
"""Load, 0 to 1, up to which partials may use what finals and speculation leave. Above it queues
grow."""


class WorkerLoad:
    """Recent load of a model's workers by priority. Shares are of all workers' time together, 0 to
    1."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._busy_s = dict.fromkeys(DecodePriority, 0.0)
        self._at = 0.0

    def add(self, call: Iterable[DecodePriority], seconds: float, now: float) -> None:
        """Records that a call took `seconds`, shared equally by its items. `now`: clock time in
        seconds."""
        priorities = list(call)
        self._forget(now)
        for priority in priorities:
            self._busy_s[priority] += seconds / len(priorities)

    def has_room_for_partial(self, now: float, soon_s: float) -> bool:
        """True if another partial leaves finals and speculation enough room. `soon_s`: expected
        time of all partials that wait or run, and of this one."""
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
