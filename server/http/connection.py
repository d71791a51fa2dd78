"""HTTP connections below the application: time limits, refused bodies and invalid requests. Each
phase of a connection has a time limit, the rest of a refused body is not read, and invalid HTTP
gets a request id, our error format, one log line and a metric."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import StreamReader, hdrs
from aiohttp import web as aioweb
from aiohttp.http_exceptions import LineTooLong

from core.conversation.ids import new_id
from core.errors import EarshotError, RequestError
from core.net.acceptor import OnConnectionLost
from core.packages.private_names import HTTP_NAMES, missing_names
from core.ports import Metrics
from server.http.edge import error_response
from server.http.willow_urls import RequestLine
from server.runtime.logs import request_id

logger = logging.getLogger(__name__)

HEADER_LIMIT_BYTES = 8190
"Limit of one header line. Cookies of a localhost that several programs share can be large."

HEADER_TIMEOUT_S = 10.0
"Time in seconds for a header: from the connection, or from its first byte later, to its end."

BODY_TIMEOUT_S = 30.0
"Longest time in seconds between two bytes of a body. Even slow networks send some sooner."

KEEP_ALIVE_S = 75.0
"Seconds for which a connection without a request stays open; proxies and browsers wait less."

LINGER_S = 1.0
"""Time in seconds for which a connection stays open after the answer to a body that is not read. A
connection that is closed with unread data is reset, and the client may never see the answer. So
data that still comes is read and dropped meanwhile."""

LINGER_BYTES = 256 * 1024
"Largest number of bytes that are read and dropped after the answer: what both sockets can hold."

READS_PER_STEP = 16
"Number of lines or pieces of a form that are read before other tasks run: some 0.3 ms of work."

OPTIONS: Mapping[str, Any] = {
    "access_log": None,  # the edge logs requests
    "max_line_size": HEADER_LIMIT_BYTES,
    "max_field_size": HEADER_LIMIT_BYTES,
    "keepalive_timeout": KEEP_ALIVE_S,
    "auto_decompress": False,  # the edge refuses content encodings: some kilobytes become gigabytes
}
"Arguments of aiohttp's request handler."


def check_http_names() -> None:
    """Raises EarshotError if the installed aiohttp lacks a private name that this package uses."""
    if missing := missing_names(HTTP_NAMES):
        raise EarshotError(f"this release of aiohttp cannot be used: {'; '.join(missing)}")


class HttpRunner(aioweb.AppRunner):
    """aiohttp's runner, with our own connections."""

    __slots__ = ("_metrics",)

    def __init__(self, app: aioweb.Application, metrics: Metrics, *, shutdown_timeout_s: float):
        super().__init__(app, shutdown_timeout=shutdown_timeout_s)
        self._metrics = metrics

    async def _make_server(self) -> aioweb.Server:
        server = await super()._make_server()
        return _HttpServer(server, self._metrics)

    def connection(self, on_lost: OnConnectionLost) -> asyncio.Protocol:
        """Creates a connection; `on_lost` is called when it is closed."""
        assert isinstance(self.server, _HttpServer)
        return self.server.connection(on_lost)


class _HttpServer(aioweb.Server):
    """aiohttp's server, which creates connections of our class."""

    def __init__(self, original: aioweb.Server, metrics: Metrics) -> None:
        super().__init__(
            original.request_handler, request_factory=_checking_factory(original.request_factory)
        )
        self._count = metrics.count

    def connection(self, on_lost: OnConnectionLost) -> asyncio.Protocol:
        """Creates a connection; `on_lost` is called when it is closed."""
        return _HttpConnection(self, self._count, on_lost)


def _checking_factory(
    factory: Callable[..., aioweb.BaseRequest],
) -> Callable[..., aioweb.BaseRequest]:
    """Wraps aiohttp's request factory: drops the host of a target that is a whole URL, and wraps
    forms.

    Only the Host header is checked, so the URL's host must not count. aiohttp also decodes it, and
    some names (`xn--`) would end the connection's task without an answer. The body of a form lets
    other tasks run while it is read.
    """

    def make(message: Any, payload: Any, *arguments: Any) -> aioweb.BaseRequest:
        if message.url.raw_host is not None:
            message = message._replace(url=message.url.relative())
        if message.headers.get(hdrs.CONTENT_TYPE, "").lower().startswith("multipart/"):
            payload = FormBody(payload)
        return factory(message, payload, *arguments)

    return make


class FormBody:
    """Body of a form that lets other tasks run while it is parsed. aiohttp reads the available data
    line by line and never waits: a megabyte of empty lines, or of parts with one byte each, took
    more than a second without a break."""

    def __init__(self, body: StreamReader) -> None:
        self._body = body
        self._reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def readline(self, **limits: Any) -> bytes:
        await self._yield_to_others()
        return await self._body.readline(**limits)

    async def read(self, size: int = -1) -> bytes:
        await self._yield_to_others()
        return await self._body.read(size)

    async def _yield_to_others(self) -> None:
        self._reads += 1
        if self._reads % READS_PER_STEP == 0:
            await asyncio.sleep(0)


class _HttpConnection(aioweb.RequestHandler):
    """One HTTP connection: adds time limits, refuses bodies and answers invalid requests. It
    overrides methods of aiohttp's RequestHandler, some of them private."""

    __slots__ = (
        "_body",
        "_count",
        "_deadline_s",
        "_dropped_bytes",
        "_first_line",
        "_linger",
        "_on_lost",
        "_timer",
        "_timer_at_s",
    )

    def __init__(
        self, server: aioweb.Server, count: Callable[..., None], on_lost: OnConnectionLost
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            **OPTIONS,
        )
        self._count, self._on_lost = count, on_lost
        self._first_line = RequestLine()
        self._body: StreamReader | None = None
        "Body of the latest request, while more of it is expected."
        self._deadline_s: float | None = None
        """Loop time by which the header or the next byte of the body must arrive. None: nothing is
        expected."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self._linger: asyncio.Future[None] | None = None
        "Set while the rest of a refused body is dropped; done when that is over."
        self._dropped_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._expect_within(HEADER_TIMEOUT_S)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._on_lost()
        self._deadline_s = None
        if self._timer is not None:
            self._timer.cancel()
        self._end_linger()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Gives received bytes to the parser, or drops them after a refused body."""
        if self._upgraded:  # a WebSocket has limits of its own, and checks cost time per call
            self._deadline_s = None
            super().data_received(data)
            return
        if self._linger is not None:
            self._drop(data)
            return
        parser_data = self._first_line.push(data)
        if parser_data or not data:  # empty data: the parser continues with what it still holds
            count = self._request_count
            super().data_received(parser_data)
            if self._request_count > count and self._messages:
                self._body = self._messages[-1][1]
                self._deadline_s = None
        self._set_next_deadline(is_more=bool(data))

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resumes reading; only from now on the client's silence counts."""
        if self._body is not None:
            self._expect_within(BODY_TIMEOUT_S)
        super().resume_reading(resume_parser)

    def _set_next_deadline(self, *, is_more: bool) -> None:
        """Sets the deadline for what must come next. `is_more`: new bytes came; otherwise only
        buffered ones were parsed."""
        if self._body is not None:
            if self._body.is_eof():
                self._body = self._deadline_s = None
            elif is_more or self._deadline_s is None:
                self._expect_within(BODY_TIMEOUT_S)
        elif is_more and self._deadline_s is None and not self._messages:
            self._expect_within(HEADER_TIMEOUT_S)  # the beginning of the next header

    def _expect_within(self, wait_s: float) -> None:
        """Sets the deadline to `wait_s` seconds from now. The timer is set again only if it would
        fire too late, because most deadlines move before it fires, and setting it costs time."""
        self._deadline_s = self._loop.time() + wait_s
        if self._timer is None or self._timer_at_s > self._deadline_s:
            self._set_timer()

    def _set_timer(self) -> None:
        assert self._deadline_s is not None
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = self._deadline_s
        self._timer = self._loop.call_at(self._deadline_s, self._check_deadline)

    def _check_deadline(self) -> None:
        """Runs when the timer fires: sets it again, or ends a phase that has taken too long."""
        self._timer = None
        if self._deadline_s is None or self.transport is None:
            return
        if self._loop.time() < self._deadline_s:
            self._set_timer()
        elif self._body is not None and (self._reading_paused or self._buffer_paused):
            self._expect_within(BODY_TIMEOUT_S)  # we do not read now, so the client is not to blame
        elif self._body is not None:
            self._deadline_s = None
            self._body.set_exception(
                RequestError(
                    f"no data of the body arrived for {BODY_TIMEOUT_S:.0f} s",
                    code="upload_stalled",
                )
            )
        elif self._current_request is not None:
            self._expect_within(HEADER_TIMEOUT_S)  # the previous request is still being answered
        else:
            self._count("earshot_errors", code="header_timeout")
            self.transport.abort()  # close() would wait for unsent data and for TLS

    async def finish_response(
        self, request: aioweb.BaseRequest, resp: aioweb.StreamResponse, start_time: float | None
    ) -> tuple[aioweb.StreamResponse, bool]:
        """Sends the answer. After an error the rest of the body is not read and the connection
        ends."""
        has_unread_body = resp.status >= HTTPStatus.BAD_REQUEST and not request.content.is_eof()
        if has_unread_body:
            self._lingering_time = 0.0
            if not resp.prepared:
                resp.force_close()
        sent_response, is_gone = await super().finish_response(request, resp, start_time)
        if has_unread_body and not is_gone:
            await self._close_gently()
        return sent_response, is_gone

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """Stops without waiting for data that is dropped anyway."""
        self._end_linger()
        await super().shutdown(timeout)

    async def _close_gently(self) -> None:
        """Ends our half of the connection, then reads and drops what the client still sends, for at
        most LINGER_S."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self._deadline_s = None
        self._linger = self._loop.create_future()
        if transport.can_write_eof():
            transport.write_eof()
        self._resume_transport_reading()
        await asyncio.wait([self._linger], timeout=LINGER_S)
        self._end_linger()

    def _drop(self, data: bytes) -> None:
        """Counts the bytes of a refused body that are dropped, and stops after LINGER_BYTES."""
        self._dropped_bytes += len(data)
        if self._dropped_bytes > LINGER_BYTES:
            self._pause_transport_reading()
            self._end_linger()

    def _end_linger(self) -> None:
        if self._linger is not None and not self._linger.done():
            self._linger.set_result(None)

    def log_exception(self, *args: object, **kwargs: object) -> None:
        """Logs an exception. The rest of a body may break off after its request succeeded: that is
        no bug of ours."""
        if isinstance(kwargs.get("exc_info"), aioweb.RequestPayloadError | RequestError):
            logger.info("the rest of a request body cannot be read")
        else:
            super().log_exception(*args, **kwargs)

    def handle_error(
        self,
        request: aioweb.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> aioweb.StreamResponse:
        """Answers a request that is no HTTP (status 400), or a bug outside the application (status
        500). The bytes stay out of the log: they may be a cookie. The name of the parser's error
        stays out of the answer: it would show which parser this is."""
        request_id.set(new_id("req"))
        error: EarshotError
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            # it logs the error; the page that it returns is not sent
            super().handle_error(request, status, exc, message)
            error = EarshotError(f"internal error; see the server's log for {request_id.get()}")
        else:
            logger.info("not an HTTP request: %s", type(exc).__name__)
            error = RequestError(_describe_parse_error(exc), code="invalid_http")
        self._count("earshot_errors", code=error.code)
        response = _AnonymousResponse.copy_of(error_response(error))
        response.headers["X-Request-ID"] = request_id.get()
        response.force_close()
        return response


class _AnonymousResponse(aioweb.Response):
    """Response without a Server header. For other responses the application's hook removes it."""

    @classmethod
    def copy_of(cls, response: aioweb.Response) -> "_AnonymousResponse":
        return cls(body=response.body, status=response.status, headers=response.headers)

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall(hdrs.SERVER, None)


def _describe_parse_error(error: BaseException | None) -> str:
    """Returns the message for a client that sent no valid HTTP."""
    if isinstance(error, LineTooLong):
        return f"a line of the header has more than {HEADER_LIMIT_BYTES} bytes, the limit"
    return "this is no HTTP/1.1 request"
