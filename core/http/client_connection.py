"""Work for somebody who may leave: it ends with them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from core.errors import RequestError

ValueT = TypeVar("ValueT")

LOOK_S = 0.2
"aiohttp tells a handler of a lost connection only when it reads or writes: so we look."


class RequestWithTransport(Protocol):
    """A request, as far as this needs it."""

    @property
    def transport(self) -> object | None:
        """None: its connection is lost."""
        ...


class ClientDisconnected(RequestError):
    """Nobody hears the answer; it is for the log."""

    code = "client_gone"

    def __init__(self) -> None:
        super().__init__("the client went away")


async def while_connected(
    request: RequestWithTransport, work: Coroutine[Any, Any, ValueT]
) -> ValueT:
    """What `work` gives; when the connection is lost it is cancelled. Raises ClientGone, and what
    `work` raises, as an ExceptionGroup."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        while not task.done():
            await asyncio.wait([task], timeout=LOOK_S)
            if request.transport is None and not task.done():
                raise ClientDisconnected
    return task.result()
