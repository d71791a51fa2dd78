"""How much of one kind of work is done at once, and when the last of it is over."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import OverloadedError

DRAINING_RETRY_AFTER_S = 5
"Until the server is there again."


class CapacityLimit:
    """`full` says in an error what there is too much of."""

    def __init__(
        self, limit: int, full: str, *, retry_after_s: int, code: str | None = None
    ) -> None:
        self._limit, self._full = limit, full
        self._retry_after_s, self._code = retry_after_s, code
        self._taken = 0
        self._is_draining = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def taken(self) -> int:
        return self._taken

    @contextmanager
    def take(self) -> Iterator[None]:
        """One place while it is open. Raises Overloaded."""
        if self._is_draining:
            raise OverloadedError(
                "the server is shutting down",
                retry_after_s=DRAINING_RETRY_AFTER_S,
                code="draining",
            )
        if self._taken >= self._limit:
            raise OverloadedError(
                f"{self._limit} {self._full}, the limit",
                retry_after_s=self._retry_after_s,
                code=self._code,
            )
        self._taken += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._taken -= 1
            if self._taken == 0:
                self._is_idle.set()

    async def drain(self) -> None:
        """Give no more; wait until none is taken."""
        self._is_draining = True
        await self._is_idle.wait()
