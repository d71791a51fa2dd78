"""Limits of requests and sessions: how many at the same time, and how many within a minute."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from core.errors import OverloadedError

DRAINING_RETRY_AFTER_S = 5
"Wait in seconds for clients that are refused at shutdown, until the server has restarted."


class PlaceCounter(Protocol):
    """Counts places by the name of what they are for. Several processes may share the counts."""

    def take(self, name: str) -> int:
        """Takes one place. Returns what `give_back` needs. Raises OverloadedError."""
        ...

    def give_back(self, name: str, place: int) -> None:
        """Gives a place back."""
        ...

    def count(self, name: str) -> int:
        """Returns the number of places with this name that are taken."""
        ...


class OwnPlaces:
    """The `PlaceCounter` of one process."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def take(self, name: str) -> int:
        self._taken[name] += 1
        return 0

    def give_back(self, name: str, place: int) -> None:
        _ = place
        self._taken[name] -= 1
        if not self._taken[name]:
            del self._taken[name]

    def count(self, name: str) -> int:
        return self._taken[name]


class CapacityLimit:
    """A number of places. Each user takes one and gives it back."""

    def __init__(
        self,
        limit: int | None = None,
        full: str = "",
        *,
        retry_after_s: int = 0,
        code: str | None = None,
        name: str = "",
        places: PlaceCounter | None = None,
    ) -> None:
        """`limit`: None counts without refusing. `full`: the error's text, with `{limit}` where the
        number of places belongs. `name`, `places`: name of the places, and who counts them for all
        processes; None: this limit counts its own."""
        self._limit, self._full = limit, full
        self._name, self._places = name, places or OwnPlaces()
        self._retry_after_s, self._code = retry_after_s, code
        self._taken = 0
        self._is_draining = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def taken(self) -> int:
        """Number of places that this process has taken."""
        return self._taken

    @property
    def taken_by_all(self) -> int:
        """Number of places that all processes have taken."""
        return self._places.count(self._name)

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
        if self._limit is not None and self.taken_by_all >= self._limit - spare:
            raise self._refusal(spare)

    @contextmanager
    def take(self, spare: int = 0) -> Iterator[None]:
        """Holds one place while it is open, and leaves `spare` places to others. Raises
        OverloadedError: no place is left, or the server is draining."""
        self.check(spare)
        place = self._places.take(self._name)
        # Another process may have taken the last place since `check`.
        if self._limit is not None and self.taken_by_all > self._limit - spare:
            self._places.give_back(self._name, place)
            raise self._refusal(spare)
        self._taken += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._places.give_back(self._name, place)
            self._taken -= 1
            if self._taken == 0:
                self._is_idle.set()

    def _refusal(self, spare: int) -> OverloadedError:
        assert self._limit is not None
        return OverloadedError(
            self._full.format(limit=self._limit - spare),
            retry_after_s=self._retry_after_s,
            code=self._code,
        )

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
