"""Pages that watch something: server-sent events, to as many as there is room for.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from core.errors import OverloadedError, RequestError
from core.http.client_connection import ClientDisconnected

# Bytes to somebody who may take them slowly, or not at all.

STALL_S = 120.0
"""Of a player that takes nothing: longer than it plays what lies in the sockets' buffers, up to
2 MB, before it makes room. Meanwhile it holds a voice."""


class ResponseWriter(Protocol):
    """A response, as far as this needs it."""

    async def write(self, data: bytes) -> None:
        """Waits while the peer has enough."""
        ...


async def send(response: ResponseWriter, data: bytes) -> None:
    """Raises ClientGone; RequestError download_stalled when nothing is taken for STALL_S."""
    try:
        async with asyncio.timeout(STALL_S):
            await response.write(data)
    except ConnectionError as exc:
        raise ClientDisconnected from exc
    except TimeoutError as exc:
        raise RequestError(f"nothing was taken for {STALL_S:g} s", code="download_stalled") from exc


HEADERS: Mapping[str, str] = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}
"Of a response that is watched."

HEARTBEAT_S = 15.0
"Proxies cut silent connections at 30 to 60 s; also how soon a lost page is seen."

ALIVE = b": still here\n\n"
RETRY_AFTER_S = 10


class EventStreamResponse(ResponseWriter, Protocol):
    """The web library's response, with HEADERS, not yet begun."""

    async def prepare(self, request: Any) -> Any:
        """Send the head."""
        ...


T = TypeVar("T", bound=EventStreamResponse)


class EventStreamSubscribers:
    """Those of one thing. Each holds a socket and what it did not read yet, which is one event and
    the socket's buffer: the next event is not asked for before the last one went."""

    def __init__(self, what: str, most: int, heartbeat_s: float = HEARTBEAT_S) -> None:
        """`what` is watched by `most` pages at once."""
        self._what, self._most, self._heartbeat_s = what, most, heartbeat_s
        self._count = 0

    async def show(self, request: Any, response: T, events: AsyncGenerator[bytes, None]) -> T:
        """`events`, whole ones, until the page is gone. Closes them. Raises Overloaded
        too_many_watchers, what comes instead of the first event, and in an ExceptionGroup what
        comes later: RequestError download_stalled, for a page that takes nothing."""
        if self._count >= self._most:
            raise OverloadedError(
                f"{self._most} pages watch {self._what} already",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_watchers",
            )
        self._count += 1
        try:
            async with aclosing(events):
                first = await anext(events)  # raises before it is too late to say so
                try:
                    await response.prepare(request)
                    await self._send(response, first, events)
                except* (ClientDisconnected, ConnectionError):
                    pass  # the page is gone, which is how every watch ends
        finally:
            self._count -= 1
        return response

    async def _send(
        self, response: ResponseWriter, first: bytes, events: AsyncGenerator[bytes, None]
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            await send(response, first)
            coming = tasks.create_task(_next(events))
            while True:
                done, _ = await asyncio.wait([coming], timeout=self._heartbeat_s)
                data = coming.result() if done else ALIVE
                if data is None:
                    return
                await send(response, data)
                if done:
                    coming = tasks.create_task(_next(events))


async def _next(events: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(events, None)
