"""TaskGroups whose one error is raised as itself."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar


@contextmanager
def single_error() -> Iterator[None]:
    """Around a TaskGroup: callers catch the one error that ended it, not a group of one. Several
    stay a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


# Blocking calls beside the event loop.

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """As `asyncio.to_thread`, but never ends before the call: what it uses may then be closed.

    Cancelling takes as long as the call; give it short ones.
    """
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, partial(call, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _ended(running)
        raise


async def _ended(running: asyncio.Future[T]) -> None:
    """Wait, whatever happens; how it ends is nobody's business any more."""
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()
