"""HTTP connections below the application: what aiohttp leaves open, reads on or cannot parse.

Each phase of a connection has its time, the rest of a refused body is not read, and bytes that are
no HTTP get an id, our error shape, one log line and a metric.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import StreamReader, hdrs
from aiohttp import web as aioweb
from aiohttp.http_exceptions import LineTooLong

from core.acceptor import OnConnectionLost
from core.errors import EarshotError, RequestError
from core.ids import new_id
from core.ports import Metrics
from server.http.edge import error_response
from server.http.willow_urls import RequestLine
from server.runtime.logs import request_id

logger = logging.getLogger(__name__)

HEADER_LIMIT_BYTES = 8190  # of one header line; cookies of a shared localhost can be large

HEADER_TIMEOUT_S = 10.0
"From the connection, or the first byte of a later request, to the end of its header."

BODY_TIMEOUT_S = 30.0
"Between two bytes of a body. A slow network sends some every few seconds."

KEEP_ALIVE_S = 75.0
"Of a connection without a request; longer than proxies and browsers keep theirs."

LINGER_S = 1.0
"""After the answer to a body that is not read: a connection that ends with something unread is
reset, and the client may never see why. So what was on its way is thrown away meanwhile."""

LINGER_BYTES = 256 * 1024
"As much of it at most: what sockets hold on both sides."

READS_PER_TURN = 16
"Of a form's lines and pieces: some 0.3 ms."

OPTIONS: Mapping[str, Any] = {
    "access_log": None,  # the edge logs requests
    "max_line_size": HEADER_LIMIT_BYTES,
    "max_field_size": HEADER_LIMIT_BYTES,
    "keepalive_timeout": KEEP_ALIVE_S,
    "auto_decompress": False,  # the edge refuses content encodings: some kilobytes become gigabytes
}


class HttpRunner(aioweb.AppRunner):
    """aiohttp's, with connections of ours."""

    __slots__ = ("_metrics",)

    def __init__(self, app: aioweb.Application, metrics: Metrics, *, shutdown_timeout_s: float):
        super().__init__(app, shutdown_timeout=shutdown_timeout_s)
        self._metrics = metrics

    async def _make_server(self) -> aioweb.Server:
        plain = await super()._make_server()
        return _HttpServer(plain, self._metrics)

    def connection(self, left: OnConnectionLost) -> asyncio.Protocol:
        """A new one; `left` is called when it is over."""
        assert isinstance(self.server, _HttpServer)
        return self.server.connection(left)


class _HttpServer(aioweb.Server):
    def __init__(self, plain: aioweb.Server, metrics: Metrics) -> None:
        super().__init__(plain.request_handler, request_factory=_checked(plain.request_factory))
        self._count = metrics.count

    def connection(self, left: OnConnectionLost) -> asyncio.Protocol:
        return _HttpConnection(self, self._count, left)


def _checked(factory: Callable[..., aioweb.BaseRequest]) -> Callable[..., aioweb.BaseRequest]:
    """The factory for requests whose target is a whole URL, too: its host is left out, as the Host
    header alone is looked at. aiohttp decodes it, and some (`xn--`) would end the connection's task
    without an answer. And for forms, whose body takes turns."""

    def make(message: Any, payload: Any, *arguments: Any) -> aioweb.BaseRequest:
        if message.url.raw_host is not None:
            message = message._replace(url=message.url.relative())
        if message.headers.get(hdrs.CONTENT_TYPE, "").lower().startswith("multipart/"):
            payload = FormBody(payload)
        return factory(message, payload, *arguments)

    return make


class FormBody:
    """The body of a form, a stream: others have their turn while it is taken apart.

    The web library reads line by line what is there already, and so waits for nothing: a megabyte
    of empty lines or of parts with a byte each took more than a second in one go.
    """

    def __init__(self, body: StreamReader) -> None:
        self._body = body
        self._reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def readline(self, **limits: Any) -> bytes:
        await self._take_turns()
        return await self._body.readline(**limits)

    async def read(self, size: int = -1) -> bytes:
        await self._take_turns()
        return await self._body.read(size)

    async def _take_turns(self) -> None:
        self._reads += 1
        if self._reads % READS_PER_TURN == 0:
            await asyncio.sleep(0)


class _HttpConnection(aioweb.RequestHandler):
    __slots__ = (
        "_body",
        "_count",
        "_deadline",
        "_first_line",
        "_left",
        "_thrown_away_bytes",
        "_timer",
        "_timer_at",
        "_unread",
    )

    def __init__(
        self, server: aioweb.Server, count: Callable[..., None], left: OnConnectionLost
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            **OPTIONS,
        )
        self._count, self._left = count, left
        self._first_line = RequestLine()
        self._body: StreamReader | None = None
        "Of the request that came last, while more of it is to come."
        self._deadline: float | None = None
        "When the header or the next byte of the body must be there. None: nothing is waited for."
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._unread: asyncio.Future[None] | None = None
        "While the rest of a refused body is thrown away; done when that is over."
        self._thrown_away_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._expect_within(HEADER_TIMEOUT_S)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._left()
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
        self._end_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._upgraded:  # a WebSocket: it has its own limits, and each call costs
            self._deadline = None
            super().data_received(data)
            return
        if self._unread is not None:
            self._throw_away(data)
            return
        passed = self._first_line.push(data)
        if passed or not data:  # without any: the parser shall go on with what it still holds
            count = self._request_count
            super().data_received(passed)
            if self._request_count > count and self._messages:
                self._body = self._messages[-1][1]
                self._deadline = None
        self._came(is_more=bool(data))

    def resume_reading(self, resume_parser: bool = True) -> None:
        """We can take more: only now it is the client's turn."""
        if self._body is not None:
            self._expect_within(BODY_TIMEOUT_S)
        super().resume_reading(resume_parser)

    def _came(self, *, is_more: bool) -> None:
        """Note what has to come next. `is_more`: bytes came; otherwise old ones were looked at."""
        if self._body is not None:
            if self._body.is_eof():
                self._body = self._deadline = None
            elif is_more or self._deadline is None:
                self._expect_within(BODY_TIMEOUT_S)
        elif is_more and self._deadline is None and not self._messages:
            self._expect_within(HEADER_TIMEOUT_S)  # the beginning of the next header

    def _expect_within(self, wait_s: float) -> None:
        """One timer serves all deadlines: most move before it rings, and setting it costs."""
        self._deadline = self._loop.time() + wait_s
        if self._timer is None or self._timer_at > self._deadline:
            self._set_timer()

    def _set_timer(self) -> None:
        assert self._deadline is not None
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._deadline is None or self.transport is None:
            return
        if self._loop.time() < self._deadline:
            self._set_timer()
        elif self._body is not None and (self._reading_paused or self._buffer_paused):
            self._expect_within(BODY_TIMEOUT_S)  # it is we who take nothing
        elif self._body is not None:
            self._deadline = None
            self._body.set_exception(
                RequestError(
                    f"the body stopped: nothing came for {BODY_TIMEOUT_S:.0f} s",
                    code="upload_stalled",
                )
            )
        elif self._current_request is not None:
            self._expect_within(HEADER_TIMEOUT_S)  # the one before is still being answered
        else:
            self._count("earshot_errors", code="header_timeout")
            self.transport.abort()  # closing would wait for what is sent, and for TLS

    async def finish_response(
        self, request: aioweb.BaseRequest, resp: aioweb.StreamResponse, start_time: float | None
    ) -> tuple[aioweb.StreamResponse, bool]:
        """Nothing of a body is read behind an error: the connection ends with the answer."""
        is_cut = resp.status >= HTTPStatus.BAD_REQUEST and not request.content.is_eof()
        if is_cut:
            self._lingering_time = 0.0
            if not resp.prepared:
                resp.force_close()
        answered, is_gone = await super().finish_response(request, resp, start_time)
        if is_cut and not is_gone:
            await self._let_go()
        return answered, is_gone

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """A server that stops does not wait for what it throws away."""
        self._end_unread()
        await super().shutdown(timeout)

    async def _let_go(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self._deadline = None
        self._unread = self._loop.create_future()
        if transport.can_write_eof():
            transport.write_eof()
        self._resume_transport_reading()
        await asyncio.wait([self._unread], timeout=LINGER_S)
        self._end_unread()

    def _throw_away(self, data: bytes) -> None:
        self._thrown_away_bytes += len(data)
        if self._thrown_away_bytes > LINGER_BYTES:
            self._pause_transport_reading()
            self._end_unread()

    def _end_unread(self) -> None:
        if self._unread is not None and not self._unread.done():
            self._unread.set_result(None)

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """The rest of a body whose request succeeded is read after the answer: it is no bug of ours
        that it breaks off or stops."""
        if isinstance(kwargs.get("exc_info"), aioweb.RequestPayloadError | RequestError):
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

        The bytes stay out of the log: they may be a cookie. The name of the parser's error stays
        out of the answer: it says which parser that is.
        """
        request_id.set(new_id("req"))
        error: EarshotError
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            super().handle_error(request, status, exc, message)  # it logs; its page is not sent
            error = EarshotError(f"an error of ours; the log has it under {request_id.get()}")
        else:
            logger.info("no HTTP request: %s", type(exc).__name__)
            error = RequestError(_what_is_wrong(exc), code="invalid_http")
        self._count("earshot_errors", code=error.code)
        response = _AnonymousResponse.of(error_response(error))
        response.headers["X-Request-ID"] = request_id.get()
        response.force_close()
        return response


class _AnonymousResponse(aioweb.Response):
    """A response that does not say which software sends it; the application's hook removes that
    name from all others."""

    @classmethod
    def of(cls, response: aioweb.Response) -> "_AnonymousResponse":
        return cls(body=response.body, status=response.status, headers=response.headers)

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall(hdrs.SERVER, None)


def _what_is_wrong(error: BaseException | None) -> str:
    if isinstance(error, LineTooLong):
        return f"a line of the header has more than {HEADER_LIMIT_BYTES} bytes, the limit"
    return "this is no HTTP/1.1 request"
