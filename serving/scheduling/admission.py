"""Admission control: refuses ASR requests that would wait too long, and drops requests that are no
longer useful."""

from collections.abc import Callable
from math import ceil

from core.errors import EarshotError, EngineTimeout, OverloadedError, SupersededError
from core.ports import Metrics
from serving.scheduling.priority import DROPPABLE, WAIT_LIMIT_S, DecodePriority
from serving.scheduling.queue import RequestQueue

MAX_WAITING = 256
"""Largest number of waiting requests. It bounds memory where calls are so fast that the expected
wait stays below its limit. Beyond it the least urgent request is refused."""

ExpectedWait = Callable[[DecodePriority], float]
"Function that returns the seconds until a new request of that priority would be taken by a worker."


class AdmissionControl:
    """Keeps the queue of one model short: refuses, replaces and drops requests, and counts each
    case."""

    def __init__(self, line: RequestQueue, expected_wait_s: ExpectedWait, metrics: Metrics) -> None:
        """Creates the control for one queue. `expected_wait_s`: estimates the wait of a new
        request."""
        self._line, self._expected_wait_s, self._metrics = line, expected_wait_s, metrics

    def check(self, priority: DecodePriority, share: float = 1.0) -> None:
        """Raises OverloadedError when the expected wait is above its limit. `share`: part of the
        limit to apply, 0 to 1."""
        wait_s, limit_s = self._expected_wait_s(priority), WAIT_LIMIT_S[priority] * share
        if wait_s > limit_s:
            message = (
                f"{_name(priority)} recognition would wait {wait_s:.1f} s, limit {limit_s:g} s"
            )
            raise self._refused(priority, message, wait_s)

    def make_room(self, priority: DecodePriority) -> None:
        """Drops the least urgent request from a full queue. Raises OverloadedError when no waiting
        request is less urgent than the new one."""
        if len(self._line) < MAX_WAITING:
            return
        last = self._line.least_urgent()
        is_newcomer = last.priority <= priority
        gone = priority if is_newcomer else last.priority
        # Both cases count as a refusal of the request that loses.
        message = f"{len(self._line)} recognition requests wait, limit {MAX_WAITING}"
        busy = self._refused(gone, message, self._expected_wait_s(gone))
        if is_newcomer:
            raise busy
        self._line.discard(last)
        last.fail(busy)

    def replace_older(self, utterance: str, priority: DecodePriority) -> int | None:
        """Drops the waiting requests that a newer one of the same utterance makes stale.

        Returns the place in the queue of a dropped request of the same priority, for the new one;
        None if there is none.
        """
        place = None
        for older in self._line.replaced_by(utterance, priority):
            if older.priority is priority:
                place = older.order
            self._metrics.count("earshot_asr_superseded", priority=_name(older.priority))
            older.fail(SupersededError("a newer request of the same utterance took its place"))
        return place

    def out_of_share(self, priority: DecodePriority) -> OverloadedError:
        """Returns the error for a partial that would take time that finals need."""
        return self._refused(priority, f"{_name(priority)} recognition has had its share", 0.0)

    def expired(self, priority: DecodePriority, waited_s: float, engine: str) -> EarshotError:
        """Returns the error for a request that no worker began in time."""
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
