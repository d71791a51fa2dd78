"""How busy a model's workers have lately been, by priority: what partials may still take. Pure."""

from collections.abc import Iterable
from math import exp

from serving.scheduling.priorities import DecodePriority

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
