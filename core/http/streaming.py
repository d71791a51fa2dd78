"""Sends data to clients that may read slowly, and server-sent events to a limited number of pages.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from core.access.limits import CapacityLimit
from core.errors import RequestError
from core.http.client_connection import ClientDisconnected

# Sends bytes to a client that may read them slowly, or not at all.

STALL_S = 120.0
"""Longest wait for a client that reads nothing. It must be longer than a player needs for the sound
in the sockets' buffers, up to 2 MB, before it reads on. Meanwhile the stream keeps a voice of the
TTS engine busy."""


class ResponseWriter(Protocol):
    """The part of a response that is needed here."""

    async def write(self, data: bytes) -> None:
        """Writes data. Waits while the peer's buffer is full."""
        ...


async def send(response: ResponseWriter, data: bytes) -> None:
    """Sends data. Raises ClientDisconnected; RequestError download_stalled when nothing is read for
    STALL_S."""
    try:
        async with asyncio.timeout(STALL_S):
            await response.write(data)
    except ConnectionError as exc:
        raise ClientDisconnected from exc
    except TimeoutError as exc:
        raise RequestError(
            f"the client accepted no data for {STALL_S:g} s", code="download_stalled"
        ) from exc


HEADERS: Mapping[str, str] = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}
"Headers of an event stream."

HEARTBEAT_S = 15.0
"""Interval of the heartbeat. Proxies cut silent connections after 30 to 60 s. It is also how soon a
lost page is noticed."""

HEARTBEAT = b": still here\n\n"
"Comment line that serves as heartbeat."
RETRY_AFTER_S = 10


class EventStreamResponse(ResponseWriter, Protocol):
    """The web library's response, with HEADERS, before it is sent."""

    async def prepare(self, request: Any) -> Any:
        """Sends the head of the response."""
        ...


T = TypeVar("T", bound=EventStreamResponse)


class EventStreamSubscribers:
    """Pages that watch one thing. Each holds a socket and its unread data: one event and the
    socket's buffer, because the next event is requested only after the last one was sent."""

    def __init__(self, what: str, max_subscribers: int, heartbeat_s: float = HEARTBEAT_S) -> None:
        """`what`: the thing that is watched, for errors. `max_subscribers`: limit of pages at the
        same time. `heartbeat_s`: seconds without an event until a heartbeat."""
        self._heartbeat_s = heartbeat_s
        self._places = CapacityLimit(
            max_subscribers,
            f"{{limit}} clients already watch {what}, the limit",
            retry_after_s=RETRY_AFTER_S,
            code="too_many_watchers",
        )

    async def show(self, request: Any, response: T, events: AsyncGenerator[bytes, None]) -> T:
        """Sends the events until the page is gone or they end, then closes them. Each of `events`
        is one whole event.

        Raises OverloadedError too_many_watchers, and what `events` raises in place of the first
        event. Later errors come in an ExceptionGroup, such as RequestError download_stalled for a
        page that reads nothing.
        """
        with self._places.take():
            async with aclosing(events):
                first = await anext(
                    events
                )  # may raise: the response has not begun, so it can still be a status
                try:
                    await response.prepare(request)
                    await self._send(response, first, events)
                except* (ClientDisconnected, ConnectionError):
                    pass  # the page was closed, which is the usual end
        return response

    async def _send(
        self, response: ResponseWriter, first: bytes, events: AsyncGenerator[bytes, None]
    ) -> None:
        """Sends events, and a heartbeat whenever there was none for `heartbeat_s`."""
        async with asyncio.TaskGroup() as tasks:
            await send(response, first)
            next_event = tasks.create_task(_next(events))
            while True:
                done, _ = await asyncio.wait([next_event], timeout=self._heartbeat_s)
                data = next_event.result() if done else HEARTBEAT
                if data is None:
                    return
                await send(response, data)
                if done:
                    next_event = tasks.create_task(_next(events))


async def _next(events: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(events, None)
