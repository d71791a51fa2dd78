"""Protocol of the workers that the scheduler uses."""

from collections.abc import Sequence
from typing import Protocol

from engines.base import AsrInfo, AsrItem, AsrResult


class AsrWorker(Protocol):
    """Place where an ASR model runs. Implemented by `workers.process.ProcessWorker` and
    `scheduling.lanes.WorkerLane`."""

    @property
    def is_ready(self) -> bool:
        """True if the worker is running and has loaded its model."""
        ...

    async def run(self) -> None:
        """Keeps the worker running until it is cancelled. Raises EngineError when the very first
        load fails."""
        ...

    async def ready(self) -> AsrInfo:
        """Waits until the model is loaded, and returns its properties. After the first load,
        EngineCrashed means that the worker was lost and cannot be restarted just now."""
        ...

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Recognises the items and returns one result for each. Ends within a bounded time: raises
        EngineTimeout when the model hangs."""
        ...

    def forget(self, utterance: str) -> None:
        """Drops what is cached for an utterance."""
        ...
