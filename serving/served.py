"""A loaded recognition model: its worker processes and their queue, as one thing."""

from collections.abc import Sequence

import psutil

from core.ports import Clock, Metrics
from engines.base import AsrInfo, AsrItem, AsrResult
from serving.placement.offers import AsrModelOffer
from serving.scheduling.lanes import lanes
from serving.scheduling.scheduler import AsrScheduler, AsrWorker, DecodePriority
from serving.workers.process import ProcessWorker


class ServedModel:
    """`run` keeps it alive; `ready` first, then `decode`."""

    def __init__(self, offer: AsrModelOffer, clock: Clock, metrics: Metrics) -> None:
        self._workers: Sequence[ProcessWorker] = [
            ProcessWorker("asr", offer.engine, options, metrics, index, called=offer.name)
            for index, options in enumerate(offer.workers)
        ]
        shared: list[AsrWorker] = [
            lane for worker in self._workers for lane in lanes(worker, offer.lanes)
        ]
        joins = offer.lanes > 1
        self._scheduler = AsrScheduler(
            shared if joins else self._workers, clock, metrics, can_leave=joins
        )

    @property
    def is_ready(self) -> bool:
        """A worker is there now; a crashed one comes back."""
        return any(worker.is_ready for worker in self._workers)

    async def run(self) -> None:
        """Until cancelled. Raises when the very first load fails."""
        await self._scheduler.run()

    async def ready(self) -> AsrInfo:
        return await self._scheduler.ready()

    def admit(self, priority: DecodePriority) -> None:
        self._scheduler.admit(priority)

    async def decode(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        return await self._scheduler.decode(item, priority, deadline_s=deadline_s)

    def hurry(self, utterance: str) -> None:
        self._scheduler.hurry(utterance)

    def forget(self, utterance: str) -> None:
        self._scheduler.forget(utterance)

    def resident_mb(self) -> float:
        """What the worker processes take of the machine's memory; 0: none lives."""
        total = 0.0
        for worker in self._workers:
            if worker.pid is not None:
                try:
                    total += psutil.Process(worker.pid).memory_info().rss / 2**20
                except psutil.Error:
                    continue  # it died just now
        return total
