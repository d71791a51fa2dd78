"""Measures the work on a response that may be dropped, in seconds and without idle time."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from core.ports import Clock

WorkKind = Literal["text", "voice"]


class WorkTime:
    """Work time of one response. It runs while the language model or the voice has something to
    do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy: set[WorkKind] = set()
        self._waiting: set[WorkKind] = set()
        """Busy workers that wait for the end of the turn or for room, because their output is not
        read."""
        self._sum_s = self._updated_at = 0.0

    @property
    def total_s(self) -> float:
        """Seconds of work so far."""
        runs = bool(self._busy - self._waiting)
        return self._sum_s + (self._clock.now() - self._updated_at if runs else 0.0)

    @contextmanager
    def busy(self, worker: WorkKind) -> Iterator[None]:
        """Counts the time of this worker while the context is open."""
        with self._member_of(self._busy, worker):
            yield

    @contextmanager
    def waiting(self, worker: WorkKind) -> Iterator[None]:
        """Stops counting this worker, though it is busy, while the context is open."""
        with self._member_of(self._waiting, worker):
            yield

    @contextmanager
    def _member_of(self, workers: set[WorkKind], worker: WorkKind) -> Iterator[None]:
        self._settle()
        workers.add(worker)
        try:
            yield
        finally:
            self._settle()
            workers.discard(worker)

    def _settle(self) -> None:
        self._sum_s, self._updated_at = self.total_s, self._clock.now()


class TaskTime:
    """Running time of a task, from its start until it is done, or until now."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._now = task.get_loop().time
        self._began_at = self._now()
        self._ended: float | None = None
        task.add_done_callback(self._end)

    @property
    def seconds(self) -> float:
        """Seconds from the task's start until its end, or until now."""
        return (self._now() if self._ended is None else self._ended) - self._began_at

    def _end(self, _: asyncio.Task[Any]) -> None:
        self._ended = self._now()
