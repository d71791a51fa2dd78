"""Routes behind the real error handling and access control, on a real loopback socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession
from aiohttp import web as aioweb

from core.http.routes import HttpMethod, Route
from server.http.app import build, run_application
from server.http.auth import AccessGate
from server.net.listeners import bind
from server.runtime.metrics import PrometheusMetrics

KEY = "right-key-0123456789"
MAX_BODY_BYTES = 100_000


def route(
    path: str,
    handler: Callable[[aioweb.Request], Awaitable[aioweb.StreamResponse]],
    *,
    method: HttpMethod = "GET",
    is_public: bool = False,
) -> Route:
    return Route(method, path, handler, "A test.", "test", is_public=is_public, scope="talk")


def raising(error: BaseException) -> Callable[[aioweb.Request], Awaitable[aioweb.StreamResponse]]:
    async def handler(_: aioweb.Request) -> aioweb.StreamResponse:
        raise error

    return handler


async def hello(_: aioweb.Request) -> aioweb.Response:
    return aioweb.Response(text="hello")


@asynccontextmanager
async def serving(
    routes: Iterable[Route],
    *,
    gate: AccessGate | None = None,
    metrics: PrometheusMetrics | None = None,
) -> AsyncIterator[ClientSession]:
    """Yields a client of a server with these routes; by default it is local and needs no key."""
    metrics = metrics or PrometheusMetrics()
    app = build(
        routes, gate or AccessGate(is_local=True, key=KEY), metrics, max_body_bytes=MAX_BODY_BYTES
    )
    sockets = bind("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    client = ClientSession(f"http://127.0.0.1:{port}")
    async with run_application(app, sockets, None, metrics), client:
        yield client


async def error_of(response: Any) -> dict[str, Any]:
    body = await response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "code", "param"}
    error: dict[str, Any] = body["error"]
    return error


async def answer_to(client: ClientSession, request_bytes: bytes) -> bytes:
    """Returns everything that arrives until the server closes the connection."""
    url = client._base_url
    assert url is not None
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(request_bytes)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer
