"""Decisions that the fuzzer takes: a script of bytes replaces chance."""

import random
from collections.abc import Callable

SCRIPTS = 24


class Drawn(random.Random):
    """A source of random numbers that takes them from the input, so that the fuzzer can keep the
    draws that led somewhere and change one of them. After the input's end every draw is zero: the
    first choice."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def random(self) -> float:
        return self._taken(2) / 0x1_0000

    def getrandbits(self, k: int) -> int:
        return self._taken((k + 7) // 8) & ((1 << k) - 1)

    def _randbelow(self, n: int) -> int:
        """Replaces the method that `choice` and `randrange` draw by; the usual one may draw several
        times."""
        return self._taken(((n - 1).bit_length() + 7) // 8) % n

    def _taken(self, size: int) -> int:
        begin, self._at = self._at, self._at + size
        return int.from_bytes(self._data[begin : self._at], "little")


def drawn(play: Callable[[random.Random], None]) -> Callable[[bytes], None]:
    """Returns a target that takes its input as a script."""
    return lambda data: play(Drawn(data))


def scripts(max_bytes: int = 600) -> tuple[bytes, ...]:
    """Returns some scripts of all lengths to begin with."""
    lottery = random.Random(SCRIPTS)
    return tuple(lottery.randbytes(max_bytes * n // SCRIPTS) for n in range(1, SCRIPTS + 1))
