"""Admission control: refuses requests that would wait too long, and drops requests that are no
longer useful."""

from collections.abc import Callable
from enum import IntEnum
from math import ceil
from typing import Generic

from core.errors import EarshotError, EngineTimeout, OverloadedError, SupersededError
from core.ports import Metrics
from serving.scheduling.policy import ItemT, ResultT, SchedulingPolicy
from serving.scheduling.queue import RequestQueue

ExpectedWait = Callable[[IntEnum], float]
"Function that returns the seconds until a new request of that priority would be taken by a worker."


class AdmissionControl(Generic[ItemT, ResultT]):
    """Keeps the queue of one model short: refuses, replaces and drops requests, and counts each
    case."""

    def __init__(
        self,
        queue: RequestQueue[ItemT, ResultT],
        policy: SchedulingPolicy[ItemT],
        expected_wait_s: ExpectedWait,
        metrics: Metrics,
    ) -> None:
        """Creates the control for one queue. `expected_wait_s`: estimates the wait of a new
        request."""
        self._queue, self._policy = queue, policy
        self._expected_wait_s, self._metrics = expected_wait_s, metrics

    def check(self, priority: IntEnum, share: float = 1.0) -> None:
        """Raises OverloadedError when the expected wait is above its limit. `share`: part of the
        limit to apply, 0 to 1."""
        wait_s = self._expected_wait_s(priority)
        limit_s = self._policy.rules[priority].wait_limit_s * share
        if wait_s > limit_s:
            work = f"{_name(priority)} {self._policy.work}"
            message = f"{work} would wait {wait_s:.1f} s, limit {limit_s:g} s"
            raise self._refused(priority, message, wait_s)

    def make_room(self, priority: IntEnum) -> None:
        """Drops the least urgent request from a full queue. Raises OverloadedError when no waiting
        request is less urgent than the new one."""
        if len(self._queue) < self._policy.max_waiting:
            return
        last = self._queue.least_urgent()
        is_newcomer = last.priority <= priority
        loser = priority if is_newcomer else last.priority
        # Both cases count as a refusal of the request that loses.
        limit = self._policy.max_waiting
        message = f"{len(self._queue)} {self._policy.work} requests wait, limit {limit}"
        error = self._refused(loser, message, self._expected_wait_s(loser))
        if is_newcomer:
            raise error
        self._queue.discard(last)
        last.fail(error)

    def replace_older(self, sequence: str | None, priority: IntEnum) -> int | None:
        """Drops the waiting requests that a newer one of the same sequence makes stale.

        Returns the order of a dropped request of the same priority, for the new one; None if there
        is none.
        """
        order = None
        for older in self._queue.pop_replaced(sequence, priority):
            if older.priority == priority:
                order = older.order
            self._count("superseded", older.priority)
            older.fail(SupersededError("a newer request took its place"))
        return order

    def ration_used_up(self, priority: IntEnum) -> OverloadedError:
        """Returns the error for a rationed request that would take time that others need."""
        message = (
            f"{_name(priority)} {self._policy.work} has used up its share of the workers' time"
        )
        return self._refused(priority, message, 0.0)

    def expired(self, priority: IntEnum, waited_s: float, engine: str) -> EarshotError:
        """Returns the error for a request that no worker began in time."""
        self._count("expired", priority)
        why = f"no worker began within {waited_s:.0f} s"
        if self._policy.rules[priority].is_droppable:
            return _overloaded(why, self._expected_wait_s(priority))
        return EngineTimeout(self._policy.kind, engine, why)

    def _refused(self, priority: IntEnum, message: str, wait_s: float) -> OverloadedError:
        self._count("refused", priority)
        return _overloaded(message, wait_s)

    def _count(self, outcome: str, priority: IntEnum) -> None:
        self._metrics.count(f"earshot_{self._policy.kind}_{outcome}", priority=_name(priority))


def _overloaded(message: str, wait_s: float) -> OverloadedError:
    return OverloadedError(message, retry_after_s=max(1, ceil(wait_s)), code="engine_busy")


def _name(priority: IntEnum) -> str:
    return priority.name.lower()
