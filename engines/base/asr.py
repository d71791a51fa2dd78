"""Protocol of ASR engines that can start a call while another one is running."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from engines.base import AsrItem, AsrResult

OnDecoded = Callable[[list[AsrResult] | Exception], None]
"""Callback that gets the results, one per item, or the error. It is called at most once, in a
thread of the engine."""


@runtime_checkable
class ConcurrentAsrModel(Protocol):
    """An `AsrModel` with a thread of its own. Its `decode` is `begin` followed by waiting for the
    result."""

    def begin(self, items: Sequence[AsrItem], done: OnDecoded) -> Callable[[], None]:
        """Starts to decode `items` while earlier calls may still be running, and returns at once.

        Returns a function that cancels the call: `done` is then not called, and the call's
        resources are free soon. The function does nothing when the call is over.
        """
        ...
