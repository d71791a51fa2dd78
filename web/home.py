"""Shows the home to clients without a session: as JSON, and as server-sent events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from aiohttp import web as aioweb

from core.http.routes import JSON, Route
from core.http.streaming import HEADERS, HEARTBEAT_S, EventStreamSubscribers
from pipeline.tools.home import DemoHome, HomeState

MAX_WATCHERS = 256
"Limit of open event streams. Each holds a socket and gets the whole home at every change."

_LANGUAGE = {"language": "Name areas and devices in this language (ISO 639-1)."}


def home_routes(home: DemoHome, heartbeat_s: float = HEARTBEAT_S) -> tuple[Route, ...]:
    """Returns the routes for the present state and for its changes.

    heartbeat_s: seconds without a change after which a comment keeps the connection alive.
    """
    door = _HomeDoor(home, heartbeat_s)
    return (
        Route(
            "GET",
            "/earshot/home",
            door.show,
            "Show the present state of the home: areas, devices, timers and shopping list.",
            "page",
            responses={200: HomeState},
            query=_LANGUAGE,
            scope="manage",
        ),
        Route(
            "GET",
            "/earshot/home/events",
            door.watch,
            "Watch the home: server-sent events named `home` with its whole state, one at once and"
            " one after each change.",
            "page",
            response_content_type="text/event-stream",
            query=_LANGUAGE,
            error_codes=("too_many_watchers",),
            scope="manage",
        ),
    )


def encode_event(state: HomeState) -> bytes:
    """Encodes `state` as one event. JSON has no raw line breaks, so one `data` line is enough."""
    return b"event: home\nid: %d\ndata: %b\n\n" % (state.revision, msgspec.json.encode(state))


class _HomeDoor:
    """Handlers of the routes."""

    def __init__(self, home: DemoHome, heartbeat_s: float) -> None:
        self._home = home
        self._watchers = EventStreamSubscribers("the home", MAX_WATCHERS, heartbeat_s)

    async def show(self, request: aioweb.Request) -> aioweb.Response:
        state = self._home.snapshot(request.query.get("language"))
        return aioweb.Response(
            body=msgspec.json.encode(state),
            content_type=JSON,
            headers={"Cache-Control": "no-store"},
        )

    async def watch(self, request: aioweb.Request) -> aioweb.StreamResponse:
        event_stream = self._events(request.query.get("language"))
        return await self._watchers.show(
            request, aioweb.StreamResponse(headers=HEADERS), event_stream
        )

    async def _events(self, language: str | None) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._home.watch(language)) as states:
            async for state in states:
                yield encode_event(state)
