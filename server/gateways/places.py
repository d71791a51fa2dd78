"""Places that all gateways count together, in memory that they share (ADR 118).

The file has one row for each gateway: how many cells of the row have been used, then the cells. A
cell that is not 0 holds the digest of a name, such as that of the telephone calls, and stands for
one place. Each gateway writes only its own row and reads all of them. It takes a place first and
counts then, so two gateways that take the last place at the same moment may both be refused, but
both never get it. The parent clears the row of a gateway that has ended.
"""

import mmap
import os
from hashlib import blake2b
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from core.errors import OverloadedError

CELLS = 32_767
"""Cells of a row. A session takes two, and a gateway has some hundred sessions at most. Only memory
pages that were written take room."""

ROW_WORDS = CELLS + 1
WORD_BYTES = 8

RETRY_AFTER_S = 5
"`Retry-After` of a gateway whose row is full, in seconds."


class PlaceFile:
    """The file, as the parent has it."""

    def __init__(self, gateways: int) -> None:
        """`gateways`: number of slots. While gateways are replaced, a slot has two."""
        size_bytes = (2 * gateways + 1) * ROW_WORDS * WORD_BYTES
        self.file = os.memfd_create("earshot-places")
        "File descriptor, which each gateway gets."
        os.ftruncate(self.file, size_bytes)
        self._table = _table(self.file)
        self._rows: dict[int, int] = {}
        "Number of a gateway that runs -> its row."

    def give_row(self, gateway: int) -> int:
        """Returns a row for a new gateway."""
        taken = set(self._rows.values())
        row = next(row for row in range(len(self._table)) if row not in taken)
        self._rows[gateway] = row
        return row

    def free_row(self, gateway: int) -> None:
        """Gives back all places of a gateway that has ended."""
        row = self._table[self._rows.pop(gateway)]
        row[: int(row[0]) + 1] = 0


class SharedPlaces:
    """The `PlaceCounter` of a gateway."""

    def __init__(self, file: int, row: int) -> None:
        """`file`: file descriptor, which is closed here. `row`: of this gateway."""
        self._table = _table(file)
        os.close(file)
        self._row = self._table[row]
        self._free: list[int] = []
        "Heap of cells of the row that were used and are free."

    def take(self, name: str) -> int:
        """Takes one place. Returns what `give_back` needs. Raises OverloadedError."""
        if self._free:
            cell = heappop(self._free)
        elif (cell := int(self._row[0]) + 1) > CELLS:
            raise OverloadedError(
                f"{CELLS} places are taken at this gateway, the limit", retry_after_s=RETRY_AFTER_S
            )
        self._row[cell] = _digest(name)
        self._row[0] = max(int(self._row[0]), cell)
        return cell

    def give_back(self, name: str, place: int) -> None:
        """Gives a place back."""
        assert self._row[place] == _digest(name)
        self._row[place] = 0
        heappush(self._free, place)

    def count(self, name: str) -> int:
        """Returns the number of places with this name that all gateways have taken."""
        digest = _digest(name)
        return sum(int(np.count_nonzero(row[1 : int(row[0]) + 1] == digest)) for row in self._table)


def _table(file: int) -> npt.NDArray[np.uint64]:
    words = np.frombuffer(mmap.mmap(file, os.fstat(file).st_size), np.uint64)
    return words.reshape(-1, ROW_WORDS)


def _digest(name: str) -> np.uint64:
    """Returns a number for a name, which is not 0. Two of a thousand names share one with a
    probability of 1 : 10 ** 13."""
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") | 1)
