"""Recognisers whose calls may overlap: work joins and leaves what is under way."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from engines.base import AsrItem, AsrResult

OnDecoded = Callable[[list[AsrResult] | Exception], None]
"Told the results, one per item, or what went wrong; in a thread of the engine's, once at most."


@runtime_checkable
class ConcurrentAsrModel(Protocol):
    """An `AsrModel` with a thread of its own. `decode` is `begin` and waiting for it."""

    def begin(self, items: Sequence[AsrItem], done: OnDecoded) -> Callable[[], None]:
        """Start decoding beside what is decoded already, and return at once. Calling what this
        returns cancels it: nobody is told, and what it used is free soon; nothing when it is over.
        """
        ...
