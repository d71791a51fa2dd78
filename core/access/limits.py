"""Limits of requests and sessions: how many at the same time, and how many within a minute."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import OverloadedError

DRAINING_RETRY_AFTER_S = 5
"Wait in seconds for clients that are refused at shutdown, until the server has restarted."


class CapacityLimit:
    """A number of places. Each user takes one and gives it back."""

    def __init__(
        self,
        limit: int | None = None,
        full: str = "",
        *,
        retry_after_s: int = 0,
        code: str | None = None,
    ) -> None:
        """`limit`: None counts without refusing. `full`: the error's text, with `{limit}` where the
        number of places belongs."""
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

    @property
    def is_closed(self) -> bool:
        """True if no more places are given, because the server is draining."""
        return self._is_draining

    def check_open(self) -> None:
        """Raises OverloadedError if the server is draining."""
        if self._is_draining:
            raise OverloadedError(
                "the server is shutting down",
                retry_after_s=DRAINING_RETRY_AFTER_S,
                code="draining",
            )

    def check(self, spare: int = 0) -> None:
        """Raises OverloadedError if `take(spare)` would raise now."""
        self.check_open()
        if spare and self._limit is not None and self._limit <= spare:
            raise OverloadedError(
                "the only session of this server is reserved for its owner; client secrets and"
                " named keys need server.max_sessions of at least 2",
                retry_after_s=self._retry_after_s,
            )
        if self._limit is not None and self._taken >= self._limit - spare:
            raise OverloadedError(
                self._full.format(limit=self._limit - spare),
                retry_after_s=self._retry_after_s,
                code=self._code,
            )

    @contextmanager
    def take(self, spare: int = 0) -> Iterator[None]:
        """Holds one place while it is open, and leaves `spare` places to others. Raises
        OverloadedError: no place is left, or the server is draining."""
        self.check(spare)
        self._taken += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._taken -= 1
            if self._taken == 0:
                self._is_idle.set()

    def close(self) -> None:
        """Gives no more places."""
        self._is_draining = True

    async def idle(self) -> None:
        """Waits until no place is taken."""
        await self._is_idle.wait()

    async def drain(self) -> None:
        """Gives no more places and waits until none is taken."""
        self.close()
        await self.idle()


class RequestRate:
    """Limits the requests within a minute. A client may send all of them at once. After that, one
    more is allowed each time an equal share of the minute has passed."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._interval_s = 60.0 / per_minute
        self._full_at = 0.0
        "Time at which all requests are free again."

    def take(self, now: float) -> float:
        """Counts a request. Returns 0, or the seconds after which it would be accepted; a refused
        request does not count. `now`: seconds of any monotonic clock."""
        full_at = max(self._full_at, now) + self._interval_s
        wait_s = full_at - now - 60.0
        if wait_s > 1e-9:  # floating-point sums may be off by some billionths
            return wait_s
        self._full_at = full_at
        return 0.0
