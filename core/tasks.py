"""Helpers for tasks: a TaskGroup's single error, and blocking calls in a thread."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


# Blocking calls in a thread.

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
