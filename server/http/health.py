"""`GET /health`: reports the state to everybody, and the loaded engines to a trusted caller."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec
from aiohttp import web as aioweb

from core.http.routes import JSON, Route
from server.http.access import ACCESS
from server.runtime.lifecycle import Lifecycle, LifecycleState


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of the server. All fields but the first are only for a caller with the key."""

    status: LifecycleState
    version: str | None = None
    sessions: int | None = None
    "Number of sessions that are open now."
    max_sessions: int | None = None
    loaded: Mapping[str, str] | None = None
    "Kind of engine -> name of the engine that serves it."


def health_routes(
    lifecycle: Lifecycle, details: Callable[[LifecycleState], Health]
) -> tuple[Route, ...]:
    """Returns the health route. It answers 503 while starting or draining, for load balancers.
    `details`: builds the report for a trusted caller."""

    async def report_health(request: aioweb.Request) -> aioweb.Response:
        state = lifecycle.state
        report = details(state) if request[ACCESS].is_trusted else Health(state)
        return aioweb.Response(
            status=HTTPStatus.OK if state == "ready" else HTTPStatus.SERVICE_UNAVAILABLE,
            body=msgspec.json.encode(report),
            content_type=JSON,
            headers={"Cache-Control": "no-store"},
        )

    return (
        Route(
            "GET",
            "/health",
            report_health,
            "Check whether the server is ready. With the key, the reply also lists the loaded"
            " engines.",
            "server",
            responses={200: Health, 503: Health},
            is_public=True,
        ),
    )
