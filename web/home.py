"""The home for watchers without a call: as JSON, and as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

import msgspec
from aiohttp import web as aioweb

from core.errors import Overloaded
from core.http import JSON, Route
from pipeline.home.state import HomeState

HEARTBEAT_S = (
    15.0  # proxies cut silent connections at 30 to 60 s; also how soon a lost page is seen
)
MAX_WATCHERS = 256  # each holds a socket and gets the whole home at every change
RETRY_AFTER_S = 10

_LANGUAGE = {"language": "Name areas and devices in this language (ISO 639-1)."}


class HomeSource(Protocol):
    """Where the home comes from."""

    def snapshot(self, language: str | None = None) -> HomeState:
        """The home now, named in `language`."""
        ...

    def watch(self, language: str | None = None) -> AsyncGenerator[HomeState, None]:
        """The home now, then after each change; a slow reader skips to the latest state."""
        ...


def home_routes(home: HomeSource, heartbeat_s: float = HEARTBEAT_S) -> tuple[Route, ...]:
    """The home as it is, and as it changes."""
    door = _HomeDoor(home, heartbeat_s)
    return (
        Route(
            "GET",
            "/earshot/home",
            door.show,
            "The home now: areas, devices, timers, shopping list.",
            "page",
            responses={200: HomeState},
            query=_LANGUAGE,
        ),
        Route(
            "GET",
            "/earshot/home/events",
            door.watch,
            "Server-sent events named `home`: the whole home at once, then after each change.",
            "page",
            response_content_type="text/event-stream",
            query=_LANGUAGE,
            error_codes=("too_many_watchers",),
        ),
    )


def server_sent(state: HomeState) -> bytes:
    """`state` as one event; JSON has no raw line breaks, so one `data` line is enough."""
    return b"event: home\nid: %d\ndata: %b\n\n" % (state.revision, msgspec.json.encode(state))


class _HomeDoor:
    def __init__(self, home: HomeSource, heartbeat_s: float) -> None:
        self._home = home
        self._heartbeat_s = heartbeat_s
        self._watchers = 0

    async def show(self, request: aioweb.Request) -> aioweb.Response:
        state = self._home.snapshot(request.query.get("language"))
        return aioweb.Response(
            body=msgspec.json.encode(state),
            content_type=JSON,
            headers={"Cache-Control": "no-store"},
        )

    async def watch(self, request: aioweb.Request) -> aioweb.StreamResponse:
        if self._watchers >= MAX_WATCHERS:
            raise Overloaded(
                f"{MAX_WATCHERS} pages watch the home already",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_watchers",
            )
        self._watchers += 1
        try:
            return await self._stream(request)
        finally:
            self._watchers -= 1

    async def _stream(self, request: aioweb.Request) -> aioweb.StreamResponse:
        response = aioweb.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",  # nginx would hold events back
            }
        )
        await response.prepare(request)
        try:
            async with (
                aclosing(self._home.watch(request.query.get("language"))) as states,
                asyncio.TaskGroup() as tasks,
            ):
                heartbeat = tasks.create_task(self._beat(response), name="home-heartbeat")
                async for state in states:
                    await response.write(server_sent(state))
                heartbeat.cancel()
        except* ConnectionError:
            pass  # the page is gone, which is how every watch ends
        return response

    async def _beat(self, response: aioweb.StreamResponse) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_s)
            await response.write(b": still here\n\n")
