"""Cost model of one model, learned from its calls: how many items fit into one call, and how long a
queue takes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from math import exp

from serving.scheduling.policy import PriorityRule

ITEM_WEIGHT = 0.2
"""Weight of a new sample of a lone item's time. Items differ in length, so some ten samples make
the mean."""

MARGINAL_WEIGHT = 0.5
"Weight of a new sample of `marginal_cost`. Two bad batches are enough to stop making them."

MARGINAL_DECAY = 0.99
"""Factor on `marginal_cost` for each lone call while other requests wait. After some seventy of
these a larger batch is tried again."""

MAX_MARGINAL_COST = 0.5
"""Largest `marginal_cost` with which items of equal priority share a call. n items in one call end
at 1 + marginal_cost * (n - 1); one after the other they end at (n + 1) / 2 on average. At this
value the two are the same, for any n."""

JOIN_DELAY = 0.25
"""Delay, as a share of a lone item's time, that less urgent items may cause the more urgent ones in
their call."""

BATCH_DELAY = 0.5
"Time, as a share of a lone item's, by which a call of bulk items may be longer than one item."

UNMEASURED_BATCH = 2
"Number of bulk items in a call while `marginal_cost` is unknown: the smallest that measures it."


class BatchCostModel:
    """Predicts the time of calls. A call of n items is taken to cost 1 + marginal_cost * (n - 1)
    lone items; a lone item is one that has a call for itself.

    On a GPU `marginal_cost` is near 0, on a CPU near 1. The cost of a lone item is kept by
    priority, because a partial is shorter than a file.

    Example:
        costs = BatchCostModel(ASR_SCHEDULING.rules)
        costs.observe([DecodePriority.FINAL], 0.3)          # one lone final took 0.3 s
        count = costs.batch_size(DecodePriority.FINAL, 8)   # how many finals the next call takes
    """

    def __init__(self, rules: Mapping[IntEnum, PriorityRule]) -> None:
        """Creates a model that knows nothing yet. `rules`: the rule of each priority."""
        self._rules = rules
        self._lone_s: dict[IntEnum, float] = {}
        "Seconds of a lone item, by priority."
        self._lone_calls: Counter[IntEnum] = Counter()
        "Number of lone items measured so far, by priority."
        self.marginal_cost: float | None = None
        """Cost that each further item adds to a call, as a share of a lone item, 0 to 1; None until
        measured."""

    def observe(self, call: Sequence[IntEnum], seconds: float) -> None:
        """Records that a call with items of these priorities took `seconds`."""
        others = len(call) - 1
        if others == 0:
            self._learn_lone(call[0], seconds)
            return
        expected_s = self._mean_s(call)
        if expected_s > 0 and all(priority in self._lone_s for priority in call):
            # what each further item added, as a share of a lone item
            observed = min(max((seconds / expected_s - 1) / others, 0.0), 1.0)
            self.marginal_cost = (
                observed
                if self.marginal_cost is None
                else _weighted_mean(self.marginal_cost, observed, MARGINAL_WEIGHT)
            )

    def decay(self) -> None:
        """Lowers `marginal_cost` a little, after an item went alone because sharing a call was too
        expensive."""
        if self.marginal_cost is not None:
            self.marginal_cost *= MARGINAL_DECAY

    def batch_size(self, priority: IntEnum, max_batch: int) -> int:
        """Returns the number of items of this priority that one call takes, 1 to max_batch.

        The first item goes alone, to be measured. Items that are not bulk work share a call with
        items of the same priority, unless that makes them end later on average. A call of bulk
        items stays about as short as one item, because an urgent request may arrive while it runs.
        """
        if priority not in self._lone_s:
            return 1
        if not self._rules[priority].is_bulk:
            is_costly = self.marginal_cost is not None and self.marginal_cost > MAX_MARGINAL_COST
            return 1 if is_costly else max_batch
        if self.marginal_cost is None:
            return min(UNMEASURED_BATCH, max_batch)
        return min(1 + self._joiners_within(BATCH_DELAY, max_batch), max_batch)

    def max_joiners(self, max_batch: int) -> int:
        """Returns how many less urgent items may join a call."""
        return (
            max_batch if self.marginal_cost is None else self._joiners_within(JOIN_DELAY, max_batch)
        )

    def call_s(self, call: Sequence[IntEnum]) -> float:
        """Returns the expected seconds of a call; 0 while nothing is known."""
        return self._mean_s(call) * self._relative_cost(len(call))

    def queue_s(self, waiting: Mapping[IntEnum, int], max_batch: int) -> float:
        """Returns the expected seconds that one worker needs for all waiting requests; 0 while
        nothing is known. `waiting`: number of requests by priority."""
        total_s = 0.0
        for priority, count in waiting.items():
            size = self.batch_size(priority, max_batch)
            full, rest = divmod(count, size)
            items = full * self._relative_cost(size) + (self._relative_cost(rest) if rest else 0.0)
            total_s += items * self.item_s(priority)
        return total_s

    def item_s(self, priority: IntEnum) -> float:
        """Returns the expected seconds of a lone item; 0 while nothing is known."""
        return self._lone_s.get(priority, max(self._lone_s.values(), default=0.0))

    def _learn_lone(self, priority: IntEnum, seconds: float) -> None:
        """Learns from a lone item. The first sample of a priority is cold and not typical, so the
        second replaces it."""
        self._lone_calls[priority] += 1
        weight = ITEM_WEIGHT if self._lone_calls[priority] > 2 else 1.0
        self._lone_s[priority] = _weighted_mean(self._lone_s.get(priority, 0.0), seconds, weight)

    def _joiners_within(self, delay: float, maximum: int) -> int:
        """Returns how many items may join a call without adding more than `delay` to its time, as a
        share of a lone item's."""
        return maximum if not self.marginal_cost else min(int(delay / self.marginal_cost), maximum)

    def _relative_cost(self, count: int) -> float:
        """Returns the cost of a call of `count` items, in lone items. It is `count` while nothing
        is known."""
        return 1 + (1.0 if self.marginal_cost is None else self.marginal_cost) * (count - 1)

    def _mean_s(self, call: Sequence[IntEnum]) -> float:
        return sum(map(self.item_s, call)) / len(call)


def _weighted_mean(old: float, new: float, weight: float) -> float:
    return old + weight * (new - old)


# Recent load of a model's workers, which limits rationed requests. Pure.

LOAD_TIME_CONSTANT_S = 5.0
"""Time after which work counts by 1/e. It is about one utterance with its pause."""

RATIONED_SHARE = 1 / 3
"""Largest share of the workers' time for rationed requests, such as partials: their words will be
recognised again."""

URGENT_AND_RATIONED_SHARE = 0.6
"""Load, 0 to 1, up to which rationed requests may use what urgent ones leave. Above it queues
grow."""


class WorkerLoad:
    """Recent load of a model's workers by priority. Shares are of all workers' time together, 0 to
    1."""

    def __init__(self, rules: Mapping[IntEnum, PriorityRule], workers: int) -> None:
        """Creates the load of idle workers. `rules`: the rule of each priority. `workers`: number
        of calls that run at once."""
        self._workers = workers
        self._busy_s = dict.fromkeys(rules, 0.0)
        "Recent seconds of work by priority. Older work fades with LOAD_TIME_CONSTANT_S."
        self._rationed = [priority for priority, rule in rules.items() if rule.is_rationed]
        # Bulk work waits for all others anyway, so it does not count.
        self._urgent = [
            priority
            for priority, rule in rules.items()
            if not rule.is_rationed and not rule.is_bulk
        ]
        self._updated_s = 0.0

    def add(self, call: Iterable[IntEnum], seconds: float, now_s: float) -> None:
        """Records that a call took `seconds`, shared equally by its items. `now_s`: clock time."""
        priorities = list(call)
        self._decay(now_s)
        for priority in priorities:
            self._busy_s[priority] += seconds / len(priorities)

    def has_room_for_rationed(self, now_s: float, soon_s: float) -> bool:
        """True if another rationed request leaves urgent ones enough room. `soon_s`: expected time
        of all rationed requests that wait or run, and of this one."""
        self._decay(now_s)
        urgent = self._share(sum(self._busy_s[priority] for priority in self._urgent))
        rationed = self._share(sum(self._busy_s[priority] for priority in self._rationed) + soon_s)
        return rationed <= min(RATIONED_SHARE, URGENT_AND_RATIONED_SHARE - urgent)

    def _share(self, busy_s: float) -> float:
        return busy_s / (LOAD_TIME_CONSTANT_S * self._workers)

    def _decay(self, now_s: float) -> None:
        factor = exp((self._updated_s - now_s) / LOAD_TIME_CONSTANT_S)
        for priority in self._busy_s:
            self._busy_s[priority] *= factor
        self._updated_s = now_s
