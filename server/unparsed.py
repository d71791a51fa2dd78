"""Requests that aiohttp cannot parse: they too get an id, our error shape, one log line, a metric.
Those that Willow's devices write are made so that it can.

They never reach the application with its middlewares, so this hooks in below it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web as aioweb

from core.errors import RequestError
from core.ids import new_id
from core.ports import Metrics
from server.edge import error_response
from server.logs import request_id
from server.raw_url import FirstLine

logger = logging.getLogger(__name__)

HEADER_LIMIT_BYTES = 8190  # of one header line; cookies of a shared localhost can be large

OPTIONS: Mapping[str, Any] = {
    "access_log": None,  # the edge logs requests
    "max_line_size": HEADER_LIMIT_BYTES,
    "max_field_size": HEADER_LIMIT_BYTES,
}


class Runner(aioweb.AppRunner):
    """aiohttp's, with connections of ours."""

    __slots__ = ("_metrics",)

    def __init__(self, app: aioweb.Application, metrics: Metrics, *, shutdown_timeout_s: float):
        super().__init__(app, shutdown_timeout=shutdown_timeout_s)
        self._metrics = metrics

    async def _make_server(self) -> aioweb.Server:
        plain = await super()._make_server()
        return _Server(plain, self._metrics)


class _Server(aioweb.Server):
    def __init__(self, plain: aioweb.Server, metrics: Metrics) -> None:
        super().__init__(plain.request_handler, request_factory=_of_paths(plain.request_factory))
        self._count = metrics.count

    def __call__(self) -> aioweb.RequestHandler:
        return _Connection(self, self._count)


def _of_paths(factory: Callable[..., aioweb.BaseRequest]) -> Callable[..., aioweb.BaseRequest]:
    """The factory for requests whose target is a whole URL, too: its host is left out, as the Host
    header alone is looked at. aiohttp decodes it, and some (`xn--`) would end the connection's task
    without an answer."""

    def make(message: Any, *arguments: Any) -> aioweb.BaseRequest:
        if message.url.raw_host is not None:
            message = message._replace(url=message.url.relative())
        return factory(message, *arguments)

    return make


class _Connection(aioweb.RequestHandler):
    __slots__ = ("_count", "_first_line")

    def __init__(self, server: aioweb.Server, count: Callable[..., None]) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            **OPTIONS,
        )
        self._count = count
        self._first_line = FirstLine()

    def data_received(self, data: bytes) -> None:
        passed = self._first_line.push(data)
        if passed or not data:  # without any: the parser shall go on with what it still holds
            super().data_received(passed)

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """What is left of a body is read after the answer, also of one who has no key: there it is
        no bug of ours that it is not the gzip it says it is."""
        if isinstance(kwargs.get("exc_info"), aioweb.RequestPayloadError):
            logger.info("the rest of a body cannot be read")
        else:
            super().log_exception(*args, **kwargs)

    def handle_error(
        self,
        request: aioweb.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> aioweb.StreamResponse:
        """The answer to what is no HTTP, or to a bug outside the application (status 500).

        The bytes stay out of the log: they may be a cookie.
        """
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        request_id.set(new_id("req"))
        logger.info("no HTTP request: %s", type(exc).__name__)
        self._count("earshot_errors", code="invalid_http")
        error = RequestError(
            f"this is no HTTP/1.1 request: {type(exc).__name__}", code="invalid_http"
        )
        response = error_response(error)
        response.headers["X-Request-ID"] = request_id.get()
        response.force_close()
        return response
