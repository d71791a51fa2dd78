"""Worker of the stages that write ids one after the other: semantic and coarse."""

from collections.abc import Sequence
from itertools import count
from typing import Protocol

from engines.tts.token_model.backend import TokenBackend, TokenRequest


class SequenceItem(Protocol):
    """An item whose ids are written in one sequence or in several, one after the other."""

    def next_request(self) -> TokenRequest | None:
        """Returns the next sequence; None if all are written."""
        ...

    def push(self, ids: list[int], *, has_stop: bool) -> None:
        """Takes the ids of a sequence. `has_stop`: the last one is the end marker."""
        ...


class SequenceWorker:
    """A `StageWorker` that writes one id of every item in each step."""

    def __init__(self, backend: TokenBackend, *, stop: int | None = None) -> None:
        """`stop`: the end marker, if sequences have one."""
        self.slots = backend.slots
        self._backend, self._stop = backend, stop
        self._items: dict[int, tuple[SequenceItem, int]] = {}
        "Item, and its number in the backend, by number."
        self._written: dict[int, list[int]] = {}
        "Ids of the present sequence, by number in the backend."
        self._numbers = count()

    def start(self, item: SequenceItem) -> int:
        """Adds an item that has a sequence to write."""
        number = next(self._numbers)
        self._begin(number, item)
        return number

    def step(self) -> Sequence[int]:
        """Writes one id of every item."""
        new_ids = self._backend.step()
        complete = []
        for number, (item, sequence) in list(self._items.items()):
            if (new := new_ids.get(sequence)) is None:
                continue
            ids = self._written[sequence]
            ids.append(new.id)
            if new.is_last:
                del self._written[sequence]
                item.push(ids, has_stop=new.id == self._stop)
                if not self._begin(number, item):
                    del self._items[number]
                    complete.append(number)
        return complete

    def cancel(self, number: int) -> None:
        """Ends an item, and frees its slot."""
        if (found := self._items.pop(number, None)) is not None:
            self._backend.cancel(found[1])
            self._written.pop(found[1], None)

    def _begin(self, number: int, item: SequenceItem) -> bool:
        """Starts the next sequence of an item. Returns False if there is none."""
        if (request := item.next_request()) is None:
            return False
        sequence = self._backend.start(request)
        self._items[number] = (item, sequence)
        self._written[sequence] = []
        return True
