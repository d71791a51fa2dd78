"""A test client for the routes of an API, mounted as the server mounts them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aiohttp import web as aioweb
from aiohttp.test_utils import TestClient, TestServer

from core.errors import EarshotError, NotFound, OverloadedError, RequestError, first_error
from core.http.routes import Route

Client = TestClient[aioweb.Request, aioweb.Application]


STATUSES: Mapping[type[EarshotError], int] = {
    NotFound: 404,
    RequestError: 400,
    OverloadedError: 503,
}
"Status of an answer for each kind of error, the first that fits."


@aioweb.middleware
async def _edge(
    request: aioweb.Request,
    handler: Callable[[aioweb.Request], Awaitable[aioweb.StreamResponse]],
) -> aioweb.StreamResponse:
    try:
        return await handler(request)
    except (EarshotError, ExceptionGroup) as raised:
        error = first_error(raised)
        for kind, status in STATUSES.items():
            if isinstance(error, kind) and isinstance(error, EarshotError):
                return aioweb.Response(status=status, text=error.code)
        raise


def with_client(routes: Iterable[Route], use: Callable[[Client], Awaitable[Any]]) -> None:
    """Runs `use` against a server with these routes."""

    async def run() -> None:
        app = aioweb.Application(middlewares=[_edge])
        for route in routes:
            app.router.add_route(route.method, route.path, route.handler)
        async with asyncio.timeout(20), TestClient(TestServer(app)) as client:
            await use(client)

    asyncio.run(run())
