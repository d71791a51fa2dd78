"""Lanes: a worker that decodes several requests at once appears to the scheduler as several
workers."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from engines.base import AsrInfo, AsrItem, AsrResult
from serving.workers.base import AsrWorker


class WorkerLane:
    """Carries one request at a time to a worker that several lanes share. A late request is decoded
    together with those that run already, so no request has to wait for another to fill a batch."""

    def __init__(self, worker: AsrWorker, *, is_first: bool) -> None:
        """Creates a lane. `is_first`: this lane keeps the worker running, for all lanes."""
        self._worker, self._is_first = worker, is_first

    @property
    def is_ready(self) -> bool:
        """True if the shared worker is ready."""
        return self._worker.is_ready

    async def run(self) -> None:
        """Keeps the shared worker running if this is the first lane. See `AsrWorker.run`."""
        if self._is_first:
            await self._worker.run()
        else:
            await asyncio.get_running_loop().create_future()

    async def ready(self) -> AsrInfo:
        """Returns the worker's properties with a batch size of 1, so that each request can be
        cancelled."""
        return replace(await self._worker.ready(), max_batch=1)

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Decodes on the shared worker. See `AsrWorker.decode`."""
        return await self._worker.decode(items)

    def forget(self, utterance: str) -> None:
        """See `AsrWorker.forget`."""
        self._worker.forget(utterance)


def lanes(worker: AsrWorker, count: int) -> list[WorkerLane]:
    """Returns `count` lanes of one worker. The first one runs it."""
    return [WorkerLane(worker, is_first=number == 0) for number in range(count)]
