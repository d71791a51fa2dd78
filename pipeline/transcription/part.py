"""A stretch of an utterance whose words do not change any more: decoded once, begun early."""

import asyncio
import logging

from core.audio import ASR_RATE_HZ, samples_to_ms
from core.errors import EngineError, OverloadedError
from engines.base import AsrItem, AsrResult
from pipeline.services import Recogniser
from pipeline.shared.work_time import TaskTime
from serving.scheduling.scheduler import DecodePriority

logger = logging.getLogger(__name__)


class SegmentDecode:
    """One final decode. `result` is None until it is known; a refused one may begin again."""

    def __init__(
        self, recogniser: Recogniser, item: AsrItem, start: int, result: AsrResult | None = None
    ) -> None:
        self._recogniser, self.item, self.start = recogniser, item, start
        self.result = result
        self._task: asyncio.Task[None] | None = None
        self.time: TaskTime | None = None
        "Of the newest try; None: none was needed."
        self.error: EngineError | OverloadedError | None = None
        "Why the last try failed."

    @property
    def end(self) -> int:
        """One past its last sample, in the utterance."""
        return self.start + len(self.item.pcm)

    @property
    def duration_ms(self) -> float:
        return samples_to_ms(len(self.item.pcm), ASR_RATE_HZ)

    def begin(self, tasks: asyncio.TaskGroup, priority: DecodePriority) -> None:
        """Decode it, unless it is known; FINAL hurries one that was begun."""
        if self.result is not None:
            return
        if self._task is None or self._task.done():
            self._task = tasks.create_task(self._decode(priority), name=f"part-{self.start}")
            self.time = TaskTime(self._task)
        elif priority is DecodePriority.FINAL:
            self._recogniser.hurry(self.item.utterance)

    async def tried(self) -> None:
        """Wait for the decode that was begun. Cancelling the waiter does not cancel it."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def final(self, tasks: asyncio.TaskGroup) -> AsrResult:
        """Its words, now urgent. Raises EngineError, Overloaded.

        A guess that was refused is made good. What a worker was lost with is not tried again: it
        may end the next one, too.
        """
        self.begin(tasks, DecodePriority.FINAL)
        await self.tried()
        if self.result is None and isinstance(self.error, OverloadedError):
            self.begin(tasks, DecodePriority.FINAL)
            await self.tried()
        if self.result is None:
            raise self.error or asyncio.CancelledError
        return self.result

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _decode(self, priority: DecodePriority) -> None:
        try:
            self.result = await self._recogniser.decode(self.item, priority)
        except (EngineError, OverloadedError) as exc:
            self.error = exc
            logger.info("! part of %s: %s", self.item.utterance, exc)
