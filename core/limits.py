"""Limits how much work of one kind runs at once, and waits for the last of it to end."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import OverloadedError

DRAINING_RETRY_AFTER_S = 5
"Wait in seconds for clients that are refused at shutdown, until the server has restarted."


class CapacityLimit:
    """A limited number of places. A full limit raises OverloadedError.

    `full`: what there is too much of, for the error's message. `retry_after_s`: after which seconds
    to try again.

        calls = CapacityLimit(8, "calls are open", retry_after_s=10)
        with calls.take():
            ...  # one of at most 8
    """

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
        """Number of places that are taken."""
        return self._taken

    @contextmanager
    def take(self) -> Iterator[None]:
        """Takes one place while the context is open. Raises OverloadedError when none is free, or
        while draining."""
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
        """Refuses new work, and waits until no place is taken."""
        self._is_draining = True
        await self._is_idle.wait()
