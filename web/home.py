"""Shows the home to clients without a session: as JSON, as server-sent events, and with buttons."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from aiohttp import web as aioweb

from core.http.json_body import decode_json_body
from core.http.routes import JSON, Route
from core.http.streaming import HEADERS, HEARTBEAT_S, EventStreamSubscribers
from pipeline.tools.home import Home, HomeState
from pipeline.tools.home.state import OnOff
from pipeline.tools.skills import HomeControls

MAX_WATCHERS = 256
"Limit of open event streams. Each holds a socket and gets the whole home at every change."

_LANGUAGE = {"language": "Name areas and devices in this language (ISO 639-1)."}


class SwitchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """State that a device shall have."""

    state: OnOff


class TickRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether an item of the shopping list is bought."""

    done: bool


def home_routes(
    home: Home, buttons: HomeControls, heartbeat_s: float = HEARTBEAT_S
) -> tuple[Route, ...]:
    """Returns the routes for the present state, for its changes and for its buttons.

    heartbeat_s: seconds without a change after which a comment keeps the connection alive.
    """
    door = _HomeDoor(home, buttons, heartbeat_s)
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
        Route(
            "PUT",
            "/earshot/home/entities/{id}",
            door.switch,
            "Switch a light, a switch or a fan on or off.",
            "page",
            request=SwitchRequest,
            responses={204: None},
            error_codes=("invalid_json", "invalid_value", "not_found", "not_switchable"),
            scope="manage",
        ),
        Route(
            "PUT",
            "/earshot/home/shopping_list/{id}",
            door.tick,
            "Tick an item off the shopping list, or put it on again.",
            "page",
            request=TickRequest,
            responses={204: None},
            error_codes=("invalid_json", "invalid_value", "not_found"),
            scope="manage",
        ),
        Route(
            "DELETE",
            "/earshot/home/timers/{id}",
            door.cancel_timer,
            "Cancel a timer.",
            "page",
            responses={204: None},
            error_codes=("not_found",),
            scope="manage",
        ),
    )


def encode_event(state: HomeState) -> bytes:
    """Encodes `state` as one event. JSON has no raw line breaks, so one `data` line is enough."""
    return b"event: home\nid: %d\ndata: %b\n\n" % (state.revision, msgspec.json.encode(state))


class _HomeDoor:
    """Handlers of the routes."""

    def __init__(self, home: Home, buttons: HomeControls, heartbeat_s: float) -> None:
        self._home, self._buttons = home, buttons
        self._watchers = EventStreamSubscribers("the home", MAX_WATCHERS, heartbeat_s)

    async def show(self, request: aioweb.Request) -> aioweb.Response:
        state = self._home.snapshot(request.query.get("language"))
        return aioweb.Response(
            body=msgspec.json.encode(state),
            content_type=JSON,
            headers={"Cache-Control": "no-store"},
        )

    async def switch(self, request: aioweb.Request) -> aioweb.Response:
        wanted = decode_json_body(await request.read(), SwitchRequest)
        await self._buttons.switch(request.match_info["id"], wanted.state)
        return aioweb.Response(status=204)

    async def tick(self, request: aioweb.Request) -> aioweb.Response:
        wanted = decode_json_body(await request.read(), TickRequest)
        self._buttons.tick(request.match_info["id"], is_done=wanted.done)
        return aioweb.Response(status=204)

    async def cancel_timer(self, request: aioweb.Request) -> aioweb.Response:
        self._buttons.cancel_timer(request.match_info["id"])
        return aioweb.Response(status=204)

    async def watch(self, request: aioweb.Request) -> aioweb.StreamResponse:
        event_stream = self._events(request.query.get("language"))
        return await self._watchers.show(
            request, aioweb.StreamResponse(headers=HEADERS), event_stream
        )

    async def _events(self, language: str | None) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._home.watch(language)) as states:
            async for state in states:
                yield encode_event(state)
