"""How long was worked on what nobody may get: without the time in which there was nothing to do."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from core.ports import Clock

WorkKind = Literal["text", "voice"]


class WorkTime:
    """Of an answer; runs while one of its workers has something to do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy: set[WorkKind] = set()
        self._held: set[WorkKind] = set()
        "Busy ones that wait for the end of the turn, or for room: the other side reads no more."
        self._sum_s = self._since = 0.0

    @property
    def total_s(self) -> float:
        runs = bool(self._busy - self._held)
        return self._sum_s + (self._clock.now() - self._since if runs else 0.0)

    @contextmanager
    def busy(self, worker: WorkKind) -> Iterator[None]:
        with self._among(self._busy, worker):
            yield

    @contextmanager
    def held(self, worker: WorkKind) -> Iterator[None]:
        with self._among(self._held, worker):
            yield

    @contextmanager
    def _among(self, workers: set[WorkKind], worker: WorkKind) -> Iterator[None]:
        self._settle()
        workers.add(worker)
        try:
            yield
        finally:
            self._settle()
            workers.discard(worker)

    def _settle(self) -> None:
        self._sum_s, self._since = self.total_s, self._clock.now()


class TaskTime:
    """How long a task runs, from its start until it is done or somebody looks."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._now = task.get_loop().time
        self._began = self._now()
        self._ended: float | None = None
        task.add_done_callback(self._end)

    @property
    def seconds(self) -> float:
        return (self._now() if self._ended is None else self._ended) - self._began

    def _end(self, _: asyncio.Task[Any]) -> None:
        self._ended = self._now()
