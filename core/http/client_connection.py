"""Runs work for a client, and cancels it when the client disconnects."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from core.errors import RequestError

ValueT = TypeVar("ValueT")

CHECK_INTERVAL_S = 0.2
"""Interval of the check. aiohttp reports a lost connection to a handler only when it reads or
writes."""


class RequestWithTransport(Protocol):
    """The part of a request that is needed here."""

    @property
    def transport(self) -> object | None:
        """The connection; None: it is lost."""
        ...


class ClientDisconnected(RequestError):
    """The client left, so no answer can be sent. Only for the log."""

    code = "client_gone"

    def __init__(self, message: str = "the client went away") -> None:
        super().__init__(message)


async def while_connected(
    request: RequestWithTransport, work: Coroutine[Any, Any, ValueT]
) -> ValueT:
    """Returns the result of `work`. Cancels it when the connection is lost. Raises an
    ExceptionGroup with ClientDisconnected or with what `work` raised."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        while not task.done():
            await asyncio.wait([task], timeout=CHECK_INTERVAL_S)
            if request.transport is None and not task.done():
                raise ClientDisconnected
    return task.result()
