"""One worker that decodes several requests at once, as the scheduler sees it: several workers."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from engines.base import AsrInfo, AsrItem, AsrResult
from serving.workers.base import AsrWorker


class WorkerLane:
    """One request at a time on its way to a worker that many share. What joins late is decoded
    beside what came before it, so no request need wait for another to fill a batch."""

    def __init__(self, worker: AsrWorker, *, is_first: bool) -> None:
        """`is_first`: this one keeps the worker running, for all."""
        self._worker, self._is_first = worker, is_first

    @property
    def is_ready(self) -> bool:
        return self._worker.is_ready

    async def run(self) -> None:
        """See `AsrWorker.run`."""
        if self._is_first:
            await self._worker.run()
        else:
            await asyncio.get_running_loop().create_future()

    async def ready(self) -> AsrInfo:
        """Of the worker; but a call is one item, so that each can be cancelled."""
        return replace(await self._worker.ready(), max_batch=1)

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        return await self._worker.decode(items)

    def forget(self, utterance: str) -> None:
        self._worker.forget(utterance)


def lanes(worker: AsrWorker, count: int) -> list[WorkerLane]:
    return [WorkerLane(worker, is_first=number == 0) for number in range(count)]
