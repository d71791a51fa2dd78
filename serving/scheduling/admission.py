"""Who may wait for a recognition worker, and what the others are told."""

from collections.abc import Callable
from math import ceil

from core.errors import EarshotError, EngineTimeout, OverloadedError, SupersededError
from core.ports import Metrics
from serving.scheduling.priority import DROPPABLE, WAIT_LIMIT_S, DecodePriority
from serving.scheduling.queue import RequestQueue

MAX_WAITING = 256
"Bounds memory where calls are too fast for the expected wait to: the least urgent is refused."

ExpectedWait = Callable[[DecodePriority], float]
"Seconds until a newcomer of that priority would be taken."


class AdmissionControl:
    """Keeps a line short: refuses, replaces and drops, and counts each."""

    def __init__(self, line: RequestQueue, expected_wait_s: ExpectedWait, metrics: Metrics) -> None:
        self._line, self._expected_wait_s, self._metrics = line, expected_wait_s, metrics

    def check(self, priority: DecodePriority, share: float = 1.0) -> None:
        """Raises Overloaded when the expected wait is above this share of its limit."""
        wait_s, limit_s = self._expected_wait_s(priority), WAIT_LIMIT_S[priority] * share
        if wait_s > limit_s:
            message = (
                f"{_name(priority)} recognition would wait {wait_s:.1f} s, limit {limit_s:g} s"
            )
            raise self._refused(priority, message, wait_s)

    def make_room(self, priority: DecodePriority) -> None:
        """In a full line drop what is less urgent. Raises Overloaded when nothing is."""
        if len(self._line) < MAX_WAITING:
            return
        last = self._line.least_urgent()
        is_newcomer = last.priority <= priority
        gone = priority if is_newcomer else last.priority
        message = f"{len(self._line)} recognition requests wait, limit {MAX_WAITING}"
        busy = self._refused(gone, message, self._expected_wait_s(gone))
        if is_newcomer:
            raise busy
        self._line.discard(last)
        last.fail(busy)

    def replace_older(self, utterance: str, priority: DecodePriority) -> int | None:
        """Drop what a newer request makes stale; the place of its own kind, for it to take."""
        place = None
        for older in self._line.replaced_by(utterance, priority):
            if older.priority is priority:
                place = older.order
            self._metrics.count("earshot_asr_superseded", priority=_name(older.priority))
            older.fail(SupersededError("a newer request of the same utterance took its place"))
        return place

    def out_of_share(self, priority: DecodePriority) -> OverloadedError:
        """What a partial is told that would take the time of finals."""
        return self._refused(priority, f"{_name(priority)} recognition has had its share", 0.0)

    def expired(self, priority: DecodePriority, waited_s: float, engine: str) -> EarshotError:
        """What a request is told that no worker began in time."""
        self._metrics.count("earshot_asr_expired", priority=_name(priority))
        why = f"no worker began within {waited_s:.0f} s"
        if priority in DROPPABLE:
            return _busy(why, self._expected_wait_s(priority))
        return EngineTimeout("asr", engine, why)

    def _refused(self, priority: DecodePriority, message: str, wait_s: float) -> OverloadedError:
        self._metrics.count("earshot_asr_refused", priority=_name(priority))
        return _busy(message, wait_s)


def _busy(message: str, wait_s: float) -> OverloadedError:
    return OverloadedError(message, retry_after_s=max(1, ceil(wait_s)), code="engine_busy")


def _name(priority: DecodePriority) -> str:
    return priority.name.lower()
