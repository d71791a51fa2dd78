"""Queueing servers in the time of the event loop: a shared processor, and lanes."""

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

LEAST_SHARE = 0.02
"Part of a core that is left for work when the calls alone fill all cores, so that work ends."


class SimulatedServer(Protocol):
    """Something that computes."""

    async def work(self, seconds: float) -> None:
        """Ends when work that takes `seconds` alone is done."""
        ...


class SharedProcessor:
    """Cores that divide their time equally among all work (processor sharing). One piece of work
    uses at most one core.

    Open calls take a steady part of the cores first: their packets are short work, which an
    operating system runs at once.
    """

    def __init__(self, cores: float, calls_load: float = 0.0) -> None:
        """Creates idle cores. `calls_load`: cores that open calls take."""
        self.cores, self.calls_load = cores, calls_load
        self.busy_s = 0.0
        "Core seconds of work so far, without the calls."
        self._loop = asyncio.get_running_loop()
        self._served_s = 0.0
        "Time that each piece of work would have got if it had been there from the beginning."
        self._updated_s = self._loop.time()
        self._work: list[tuple[float, int, asyncio.Future[None]]] = []
        "Heap of (value of `_served_s` at its end, number, done)."
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    async def work(self, seconds: float) -> None:
        """Ends when the work has had `seconds` of a core."""
        self._update()
        done: asyncio.Future[None] = self._loop.create_future()
        heappush(self._work, (self._served_s + seconds, next(self._numbers), done))
        self._set_timer()
        await done

    def _share(self) -> float:
        free = max(LEAST_SHARE, self.cores - self.calls_load)
        return min(1.0, free / len(self._work)) if self._work else 0.0

    def _update(self) -> None:
        now_s = self._loop.time()
        gained_s = (now_s - self._updated_s) * self._share()
        self._served_s += gained_s
        self.busy_s += gained_s * len(self._work)
        self._updated_s = now_s

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._work:
            left_s = max(0.0, self._work[0][0] - self._served_s) / self._share()
            self._timer = self._loop.call_later(left_s, self._end_first)

    def _end_first(self) -> None:
        self._update()
        self._served_s = max(self._served_s, self._work[0][0])  # no rounding error keeps it
        while self._work and self._work[0][0] <= self._served_s:
            done = heappop(self._work)[2]
            if not done.done():
                done.set_result(None)
        self._timer = None
        self._set_timer()


class LanePool:
    """Lanes that each do one piece of work at a time, first come, first served."""

    def __init__(self, lanes: int, server: SimulatedServer | None = None) -> None:
        """Creates idle lanes. `server`: does the work of all; None: each lane has its own."""
        self.lanes, self._server = lanes, server
        self.busy_s = 0.0
        self._free = asyncio.Semaphore(lanes)

    async def work(self, seconds: float) -> None:
        """Waits for a lane, then for the work."""
        async with self._free:
            self.busy_s += seconds
            if self._server is None:
                await asyncio.sleep(seconds)
            else:
                await self._server.work(seconds)
