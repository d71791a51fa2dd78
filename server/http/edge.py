"""Maps errors to HTTP statuses and WebSocket close codes; the only place that does. Every response
passes here: it gets a request id, and an error becomes JSON of one shape."""

import logging
import re
from collections.abc import Awaitable, Mapping
from http import HTTPStatus
from time import perf_counter

import msgspec
from aiohttp import HttpVersion11, WSCloseCode, hdrs
from aiohttp import web as aioweb
from aiohttp.typedefs import Handler, Middleware

from core.conversation.ids import new_id
from core.errors import (
    ConfigError,
    Conflict,
    EarshotError,
    EngineError,
    EngineMissing,
    EngineTimeout,
    Forbidden,
    NotFound,
    OverloadedError,
    PayloadTooLarge,
    RemoteProtocolError,
    RequestError,
    StorageError,
    Unauthorized,
    expected_failure,
)
from core.ports import Metrics
from server.net.addresses import host_name
from server.runtime.logs import request_id
from web.openapi import ErrorBody, ErrorDetail

logger = logging.getLogger(__name__)

STATUS_BY_CLASS: Mapping[type[EarshotError], tuple[HTTPStatus, int]] = {
    EarshotError: (HTTPStatus.INTERNAL_SERVER_ERROR, WSCloseCode.INTERNAL_ERROR),
    ConfigError: (HTTPStatus.INTERNAL_SERVER_ERROR, WSCloseCode.INTERNAL_ERROR),
    RemoteProtocolError: (HTTPStatus.BAD_REQUEST, WSCloseCode.PROTOCOL_ERROR),
    RequestError: (HTTPStatus.BAD_REQUEST, WSCloseCode.POLICY_VIOLATION),
    Unauthorized: (HTTPStatus.UNAUTHORIZED, WSCloseCode.POLICY_VIOLATION),
    Forbidden: (HTTPStatus.FORBIDDEN, WSCloseCode.POLICY_VIOLATION),
    NotFound: (HTTPStatus.NOT_FOUND, WSCloseCode.POLICY_VIOLATION),
    Conflict: (HTTPStatus.CONFLICT, WSCloseCode.POLICY_VIOLATION),
    PayloadTooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, WSCloseCode.MESSAGE_TOO_BIG),
    StorageError: (HTTPStatus.SERVICE_UNAVAILABLE, WSCloseCode.TRY_AGAIN_LATER),
    OverloadedError: (HTTPStatus.SERVICE_UNAVAILABLE, WSCloseCode.TRY_AGAIN_LATER),
    EngineError: (HTTPStatus.BAD_GATEWAY, WSCloseCode.INTERNAL_ERROR),
    EngineMissing: (HTTPStatus.NOT_IMPLEMENTED, WSCloseCode.INTERNAL_ERROR),
    EngineTimeout: (HTTPStatus.GATEWAY_TIMEOUT, WSCloseCode.INTERNAL_ERROR),
}
"Error class -> (HTTP status, WebSocket close code)."

STATUS_BY_CODE: Mapping[str, HTTPStatus] = {
    "method_not_allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "unauthorized_voice": HTTPStatus.NOT_ACCEPTABLE,  # Willow devices have a text for this status
    "too_many_guesses": HTTPStatus.TOO_MANY_REQUESTS,
    # A limit of one client, not of the server
    "too_many_requests": HTTPStatus.TOO_MANY_REQUESTS,
    "too_many_sessions": HTTPStatus.TOO_MANY_REQUESTS,
    "unsupported_media_type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "unsupported_content_encoding": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "upload_stalled": HTTPStatus.REQUEST_TIMEOUT,
    # RFC 9725 (WHIP) defines this one and the next four
    "etag_mismatch": HTTPStatus.PRECONDITION_FAILED,
    "unknown_ice_session": HTTPStatus.UNPROCESSABLE_ENTITY,
    "if_match_required": HTTPStatus.PRECONDITION_REQUIRED,
    "ice_restart_unsupported": HTTPStatus.UNPROCESSABLE_ENTITY,
    "offer_not_acceptable": HTTPStatus.UNPROCESSABLE_ENTITY,
    # a hub or the package index failed
    "download_failed": HTTPStatus.BAD_GATEWAY,
    # a click on a device of Home Assistant
    "house_failed": HTTPStatus.BAD_GATEWAY,
    "house_refused": HTTPStatus.BAD_GATEWAY,
    "house_unreachable": HTTPStatus.SERVICE_UNAVAILABLE,
    "house_timeout": HTTPStatus.GATEWAY_TIMEOUT,
}
"HTTP statuses of error codes that need another status than their class."

MAX_REQUEST_ID_CHARS = 64
"Longest id of a caller. A UUID has 36 characters, a proxy's trace id 55."
_REQUEST_ID = re.compile(rf"[!-~]{{1,{MAX_REQUEST_ID_CHARS}}}")
"Allowed ids of callers: printable ASCII without spaces."

BASIC_PATHS = "/api/"
"""Path prefix where a 401 also offers HTTP's Basic scheme, for Willow's clients. Elsewhere it would
make browsers ask for a password over the page, which asks for the key itself."""

QUIET_PATHS = ("/health", "/metrics", "/static/")
"""Prefixes of paths that are logged at debug level: they are requested every few seconds, or many
at once."""


def status_of(error: EarshotError) -> HTTPStatus:
    """Returns the HTTP status of an error."""
    return STATUS_BY_CODE.get(error.code) or _status_and_close_code(error)[0]


def close_code_of(error: EarshotError) -> int:
    """Returns the close code of a WebSocket that an error ends."""
    return _status_and_close_code(error)[1]


def _status_and_close_code(error: EarshotError) -> tuple[HTTPStatus, int]:
    return next(STATUS_BY_CLASS[cls] for cls in type(error).__mro__ if cls in STATUS_BY_CLASS)


def _type_of(status: HTTPStatus) -> str:
    """Returns the type of an error, as OpenAI's service names it."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limit_error"
    is_server_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return "server_error" if is_server_error else "invalid_request_error"


COMMON_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    # No page of another site can embed it; its scripts can read it by CORS, with the key.
    "Cross-Origin-Resource-Policy": "same-origin",
}
"Headers of every response."


def error_response(error: EarshotError) -> aioweb.Response:
    """Returns the error as JSON, with `Retry-After` if waiting helps."""
    status = status_of(error)
    detail = ErrorDetail(
        message=str(error),
        type=_type_of(status),
        code=error.code,
        param=getattr(error, "param", None),
    )
    response = aioweb.Response(
        status=status,
        body=msgspec.json.encode(ErrorBody(detail)),
        content_type="application/json",
        headers={**COMMON_HEADERS, "Cache-Control": "no-store"},
    )
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        # for OpenAI's clients: repeating a request does not cure a bug
        response.headers["x-should-retry"] = "false"
    if isinstance(error, OverloadedError):
        response.headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def request_id_of(header: str | None) -> str:
    """Returns the caller's id if it is printable and short, else a new one."""
    return header if header and _REQUEST_ID.fullmatch(header) else new_id("req")


PREPARED = aioweb.RequestKey("prepared", aioweb.StreamResponse)
"Response whose head has been sent: it cannot be replaced by an error any more."

REQUEST_ID = aioweb.RequestKey("request_id", str)
"Id of the request, for the answer's header and the log."

PASSED_ON = aioweb.RequestKey("passed_on", bool)
"Set on a request that another gateway answers, and counts by its route."


def edge(metrics: Metrics, max_body_bytes: int) -> Middleware:
    """Returns the outermost middleware. It sets the request id, writes the log line, limits the
    size of the body, and turns errors into answers."""

    @aioweb.middleware
    async def handle(request: aioweb.Request, handler: Handler) -> aioweb.StreamResponse:
        request[REQUEST_ID] = request_id_of(request.headers.get("X-Request-ID"))
        request_id.set(request[REQUEST_ID])
        began_s = perf_counter()
        try:
            limit_bytes = _limit_bytes(request) or max_body_bytes
            check_size(request.content_length, limit_bytes)
            # A chunked body has no known size: a handler that reads it whole meets the route's
            # limit too.
            request._client_max_size = min(limit_bytes, request.client_max_size)  # noqa: SLF001
            response = await handler(request)
        except Exception as error:
            response = await _respond_to_error(request, error, metrics)
        _log(request, response, 1000 * (perf_counter() - began_s))
        metrics.count(
            "earshot_http_requests", route=_route_of(request), status=str(response.status)
        )
        return response

    return handle


class ErrorBoundary:
    """Runs work that outlives its request. A bug in it is logged and ends only this work."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, work: Awaitable[None], name: str) -> None:
        """Awaits `work`. Raises nothing except cancellation."""
        try:
            await work
        except Exception as error:
            expected = expected_failure(error)
            self._metrics.count(
                "earshot_errors", code=expected.code if expected else EarshotError.code
            )
            if expected is None:
                logger.error("%s failed", name, exc_info=error)
            else:
                logger.warning("%s ended: %s (%s)", name, expected, expected.code)


LIMIT_BYTES = "limit_bytes"
"Attribute of a handler whose route has a body limit of its own, in bytes."


PLAIN_ERROR_FIELD = "plain_error_field"
"""Attribute of a handler: name of the field with the message, if the body of its errors has nothing
else; empty: the body is OpenAI's object."""


def _limit_bytes(request: aioweb.Request) -> int | None:
    limit: int | None = getattr(request.match_info.handler, LIMIT_BYTES, None)
    return limit


def check_size(body_bytes: int | None, limit_bytes: int) -> None:
    """Raises PayloadTooLarge if the Content-Length exceeds the limit, before the body is read."""
    if body_bytes is not None and body_bytes > limit_bytes:
        raise PayloadTooLarge(f"the body has {body_bytes} bytes; the limit is {limit_bytes}")


def check_encoding(headers: Mapping[str, str]) -> None:
    """Refuses a compressed body: some kilobytes of it may become gigabytes. Raises RequestError
    unsupported_content_encoding."""
    encoding = headers.get(hdrs.CONTENT_ENCODING, "").strip().lower()
    if encoding not in ("", "identity"):
        raise RequestError(
            f"Content-Encoding {encoding[:32]!r} is not supported; send the body without"
            " Content-Encoding",
            code="unsupported_content_encoding",
        )


async def send_continue(request: aioweb.Request) -> None:
    """Answers `Expect: 100-continue`. It is called once the request was admitted."""
    expects_continue = request.headers.get(hdrs.EXPECT, "").lower() == "100-continue"
    if expects_continue and request.version == HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # 100 Continue is not counted as the head of the answer


@aioweb.middleware
async def redirect_to_https(request: aioweb.Request, handler: Handler) -> aioweb.StreamResponse:
    """Redirects plain HTTP on a TLS listener to the same address with HTTPS."""
    if request.secure:
        return await handler(request)
    host = request.headers.get(hdrs.HOST, "").strip()
    if host_name(host) is None:
        raise RequestError("this port speaks HTTPS", code="https_required")
    raw_target = request.raw_path  # only a client that takes us for a proxy sends a whole URL
    target = raw_target if raw_target.startswith("/") else request.rel_url.raw_path_qs
    location = f"https://{host}{target}"
    return aioweb.Response(status=HTTPStatus.PERMANENT_REDIRECT, headers={hdrs.LOCATION: location})


async def _respond_to_error(
    request: aioweb.Request, error: Exception, metrics: Metrics
) -> aioweb.StreamResponse:
    """Returns the response to a failed request, or ends a response that has already begun."""
    if isinstance(error, aioweb.HTTPException) and error.status < HTTPStatus.BAD_REQUEST:
        # redirects are raised as exceptions too
        return aioweb.Response(status=error.status, headers=error.headers)
    answer = _as_earshot_error(request, error)
    if answer is None:
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        answer = EarshotError(f"internal error; see the server's log for {request_id.get()}")
    metrics.count("earshot_errors", code=answer.code)
    sent_response: aioweb.StreamResponse | None = request.get(PREPARED)
    if sent_response is None:
        response = error_response(answer)
        if name := getattr(request.match_info.handler, PLAIN_ERROR_FIELD, ""):
            response.body = msgspec.json.encode({name: str(answer)})
        if isinstance(answer, Unauthorized) and request.path.startswith(BASIC_PATHS):
            response.headers.add("WWW-Authenticate", 'Basic realm="Earshot", charset="UTF-8"')
        if isinstance(error, aioweb.HTTPMethodNotAllowed):
            response.headers["Allow"] = error.headers["Allow"]
        return response
    logger.warning("%s %s ended: %s (%s)", request.method, request.path, answer, answer.code)
    if isinstance(sent_response, aioweb.WebSocketResponse):
        await sent_response.close(code=close_code_of(answer), message=answer.code.encode())
    elif request.transport is not None:
        request.transport.abort()  # half an answer must not look like a whole one
    return sent_response


def _as_earshot_error(request: aioweb.Request, error: Exception) -> EarshotError | None:
    """Returns the error as one of ours, or None for a bug."""
    match error:
        case aioweb.HTTPRequestEntityTooLarge():
            return PayloadTooLarge(str(error.text))
        case aioweb.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            return RequestError(
                f"{request.path} allows {allowed}, not {error.method}", code="method_not_allowed"
            )
        case aioweb.RequestPayloadError():
            return RequestError("the body cannot be read: it is incomplete", code="invalid_body")
        case aioweb.HTTPNotFound():
            return NotFound(f"there is no {request.method} {request.path[:200]}")
        case aioweb.HTTPException() if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return RequestError(error.text or error.reason)
        case _:
            return expected_failure(error)


async def add_common_headers(request: aioweb.Request, response: aioweb.StreamResponse) -> None:
    """Adds the headers that every response carries, streams and upgrades included. Registered as
    `on_response_prepare`."""
    request[PREPARED] = response
    response.headers["X-Request-ID"] = request[REQUEST_ID]
    for name, value in COMMON_HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.popall("Server", None)  # a version would only help attackers


def _route_of(request: aioweb.Request) -> str:
    if request.get(PASSED_ON):
        return "passed_on"
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown"


def _log(request: aioweb.Request, response: aioweb.StreamResponse, duration_ms: float) -> None:
    """Logs one line per request, without the query, which may hold private text."""
    is_expected = response.status < HTTPStatus.BAD_REQUEST or request.path == "/health"
    is_quiet = request.path.startswith(QUIET_PATHS) and is_expected
    level = logging.DEBUG if is_quiet else logging.INFO
    logger.log(
        level, "%s %s -> %d in %.1f ms", request.method, request.path, response.status, duration_ms
    )
