"""What the scheduler needs of a place where a model runs."""

from collections.abc import Sequence
from typing import Protocol

from engines.base import AsrInfo, AsrItem, AsrResult


class AsrWorker(Protocol):
    """`pools.process.ProcessWorker`, later others."""

    @property
    def is_ready(self) -> bool: ...

    async def run(self) -> None:
        """Until cancelled. Raises when the very first load fails."""
        ...

    async def ready(self) -> AsrInfo:
        """Once it has loaded, EngineCrashed says that it was lost and does not come back now."""
        ...

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Ends within a bounded time: EngineTimeout when the model hangs."""
        ...

    def forget(self, utterance: str) -> None: ...
