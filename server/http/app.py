"""Builds the HTTP application: routes of the doors behind the error edge and the access gate."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from socket import socket

from aiohttp import web as aioweb
from aiohttp.typedefs import Handler, Middleware

from core.http.routes import Route
from core.net.acceptor import NO_LIMIT, AddressLimit, open_acceptors
from core.ports import Metrics
from server.http.access import ADMITS, ADMITS_PAGE, ADMITS_PEER, PUBLIC, SCOPE, allow_reading, guard
from server.http.auth import AccessGate
from server.http.connection import HttpRunner, check_http_names
from server.http.edge import (
    LIMIT_BYTES,
    PLAIN_ERROR_FIELD,
    add_common_headers,
    check_encoding,
    edge,
    redirect_to_https,
    send_continue,
)

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 1.0
"Longest wait for open requests, in seconds. It is short, because turns have drained before."


def build(
    routes: Iterable[Route],
    gate: AccessGate,
    metrics: Metrics,
    *,
    max_body_bytes: int,
    is_tls: bool = False,
    before_gate: Sequence[Middleware] = (),
    after_gate: Sequence[Middleware] = (),
) -> aioweb.Application:
    """Mounts the routes. A request passes the middlewares in the listed order. `before_gate`: those
    that act before the access rules do. `after_gate`: those that see only whom the rules let in."""
    middlewares = [
        edge(metrics, max_body_bytes),
        *([redirect_to_https] if is_tls else []),
        *before_gate,
        guard(gate),
        *after_gate,
    ]
    app = aioweb.Application(middlewares=middlewares, client_max_size=max_body_bytes)
    app.on_response_prepare.append(add_common_headers)
    app.on_response_prepare.append(allow_reading)
    open_streams = _OpenStreams()
    app.on_shutdown.append(open_streams.cancel_all)
    for route in routes:
        handler = _wrap_handler(route, open_streams)
        if route.method == "GET":  # add_get also answers HEAD
            app.router.add_get(route.path, handler, expect_handler=_skip_continue)
        else:
            app.router.add_route(route.method, route.path, handler, expect_handler=_skip_continue)
    return app


async def _skip_continue(_: aioweb.Request) -> None:
    """Replaces aiohttp's answer `100 Continue`, which would invite the body before the key is
    checked. `send_continue` sends it later."""


class _OpenStreams:
    """Event streams that end only when the client leaves. A stopping server cancels them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def register(self, route: Route) -> AbstractContextManager[None]:
        """Returns a context in which the handler runs. It registers the request if the route is an
        event stream."""
        is_stream = route.method == "GET" and route.response_content_type == "text/event-stream"
        return self._registered() if is_stream else nullcontext()

    async def cancel_all(self, _: aioweb.Application) -> None:
        """Cancels all streams. Registered as `on_shutdown`."""
        for task in self._tasks:
            task.cancel()

    @contextmanager
    def _registered(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)


def _wrap_handler(route: Route, open_streams: _OpenStreams) -> Handler:
    """Wraps a handler, and sets the access rules of its route as attributes of the wrapper. A bound
    method could not have attributes."""

    async def handler(request: aioweb.Request) -> aioweb.StreamResponse:
        check_encoding(request.headers)
        await send_continue(request)
        with open_streams.register(route):
            response: aioweb.StreamResponse = await route.handler(request)
        return response

    setattr(handler, PUBLIC, route.is_public)
    setattr(handler, SCOPE, route.scope)
    setattr(handler, ADMITS, route.admits)
    setattr(handler, PLAIN_ERROR_FIELD, route.error_field if route.has_plain_errors else "")
    setattr(handler, ADMITS_PEER, route.admits_peer)
    setattr(handler, ADMITS_PAGE, route.admits_page)
    setattr(handler, LIMIT_BYTES, route.max_body_bytes)
    return handler


@asynccontextmanager
async def run_application(
    app: aioweb.Application,
    sockets: Sequence[socket],
    context: ssl.SSLContext | None,
    metrics: Metrics,
    limit: AddressLimit = NO_LIMIT,
) -> AsyncIterator[None]:
    """Serves the application on bound sockets until the context is left, then closes open
    connections."""
    check_http_names()
    runner = HttpRunner(app, metrics, shutdown_timeout_s=CLOSE_TIMEOUT_S)
    await runner.setup()
    try:
        async with open_acceptors(sockets, runner.connection, limit=limit, tls=context):
            yield
    finally:
        await runner.cleanup()
