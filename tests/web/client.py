"""A test client for the routes of an API, mounted as the server mounts them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiohttp import web as aioweb
from aiohttp.test_utils import TestClient, TestServer

from core.errors import NotFound, OverloadedError, RequestError
from core.http.routes import Route

Client = TestClient[aioweb.Request, aioweb.Application]


@aioweb.middleware
async def _edge(
    request: aioweb.Request,
    handler: Callable[[aioweb.Request], Awaitable[aioweb.StreamResponse]],
) -> aioweb.StreamResponse:
    try:
        return await handler(request)
    except NotFound as error:
        return aioweb.Response(status=404, text=error.code)
    except RequestError as error:
        return aioweb.Response(status=400, text=error.code)
    except OverloadedError as error:
        return aioweb.Response(status=503, text=error.code)


def with_client(routes: Iterable[Route], use: Callable[[Client], Awaitable[Any]]) -> None:
    """Runs `use` against a server with these routes."""

    async def run() -> None:
        app = aioweb.Application(middlewares=[_edge])
        for route in routes:
            app.router.add_route(route.method, route.path, route.handler)
        async with asyncio.timeout(20), TestClient(TestServer(app)) as client:
            await use(client)

    asyncio.run(run())
