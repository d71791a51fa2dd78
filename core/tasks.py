"""Tools for tasks: the one error of a TaskGroup, growing waits, deadlines, calls in threads."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import ParamSpec, TypeVar


@contextmanager
def single_error() -> Iterator[None]:
    """Raises the one error that ended a TaskGroup inside as itself, not as a group of one. Several
    errors stay a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


class Backoff:
    """Waits between attempts, longer after each failure in a row. The last wait repeats."""

    def __init__(self, waits_s: Sequence[float], stable_after_s: float = float("inf")) -> None:
        """`stable_after_s`: what ran for longer than this begins a new row of failures."""
        self._waits_s, self._stable_after_s = tuple(waits_s), stable_after_s
        self.failures = 0
        "Number of failures in a row."

    @classmethod
    def doubling(cls, first_s: float, longest_s: float, stable_after_s: float) -> "Backoff":
        """Each wait is twice as long as the one before, up to `longest_s`."""
        waits_s = [first_s]
        while waits_s[-1] < longest_s:
            waits_s.append(min(2 * waits_s[-1], longest_s))
        return cls(waits_s, stable_after_s)

    def fail(self, lasted_s: float = 0.0) -> float:
        """Counts a failure of what ran for `lasted_s`. Returns the wait before the next attempt."""
        self.failures = 1 if lasted_s > self._stable_after_s else self.failures + 1
        return self._waits_s[min(self.failures, len(self._waits_s)) - 1]

    def reset(self) -> None:
        """Begins a new row of failures: an attempt succeeded."""
        self.failures = 0


class Alarm:
    """A deadline that may move, for one task that waits for it."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds."""
        self._now = now
        self._due_at: float | None = None
        self._wakes_at = float("inf")
        "Time at which the waiting task wakes by itself, on the scale of `now`."
        self._is_earlier = asyncio.Event()

    @property
    def due_at(self) -> float | None:
        """The deadline; None: there is none."""
        return self._due_at

    def set(self, due_at: float | None) -> None:
        """Moves the deadline, or takes it back. A task is woken only for an earlier one, so this
        is cheap enough for every packet."""
        self._due_at = due_at
        if due_at is not None and due_at < self._wakes_at:
            self._is_earlier.set()

    async def wait(self) -> None:
        """Returns when the deadline has passed, and takes it back."""
        while self._due_at is None or self._due_at > self._now():
            self._is_earlier.clear()
            self._wakes_at = float("inf") if self._due_at is None else self._due_at
            left_s = None if self._due_at is None else self._due_at - self._now()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._is_earlier.wait()
        self._due_at = None


# Blocking calls in a thread, so that the event loop goes on.

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a blocking call in a thread, like `asyncio.to_thread`, but never ends before the call.
    So the caller may then close what the call uses.

    Cancelling takes as long as the call; use it for short calls.
    """
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, partial(call, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _ended(running)
        raise


async def _ended(running: asyncio.Future[T]) -> None:
    """Waits for the end of a call in spite of cancellation. Its result and errors are dropped."""
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()
