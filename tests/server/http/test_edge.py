"""Error responses, request ids and size limits."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import (
    ClientConnectionError,
    ClientPayloadError,
    WSMsgType,
)
from aiohttp import web as aioweb

from core.errors import (
    AnswerFormatBroken,
    ConfigError,
    Conflict,
    ContextLengthExceeded,
    EarshotError,
    EngineCrashed,
    EngineError,
    EngineMissing,
    EngineRefused,
    EngineTimeout,
    EngineUnreachable,
    Forbidden,
    InvalidTokens,
    NotFound,
    OverloadedError,
    PayloadTooLarge,
    RemoteProtocolError,
    RequestError,
    StorageError,
    SupersededError,
    Unauthorized,
)
from core.http.routes import Route
from core.packages.private_names import PrivateName
from server.config import LogConfig
from server.http import app as app_file
from server.http import connection
from server.http.auth import AccessGate
from server.http.edge import ErrorBoundary, close_code_of, error_response, request_id_of, status_of
from server.runtime.logs import set_up
from server.runtime.metrics import PrometheusMetrics
from tests.server.http.harness import (
    KEY,
    MAX_BODY_BYTES,
    answer_to,
    error_of,
    hello,
    raising,
    route,
    serving,
)

pytestmark = pytest.mark.live

TABLE: list[tuple[EarshotError, int, int]] = [
    (EarshotError("x"), 500, 1011),
    (ConfigError("x"), 500, 1011),
    (RemoteProtocolError("x"), 400, 1002),
    (RequestError("x"), 400, 1008),
    (RequestError("x", code="unsupported_media_type"), 415, 1008),
    (Unauthorized("x"), 401, 1008),
    (Forbidden("x"), 403, 1008),
    (NotFound("x"), 404, 1008),
    (Conflict("x"), 409, 1008),
    (PayloadTooLarge("x"), 413, 1009),
    (OverloadedError("x", retry_after_s=7), 503, 1013),
    (SupersededError("x"), 503, 1013),
    (StorageError("x"), 503, 1013),
    (EngineError("asr", "x"), 502, 1011),
    (EngineMissing("asr", "x"), 501, 1011),
    (EngineCrashed("asr", "x"), 502, 1011),
    (ContextLengthExceeded("llm", "x"), 502, 1011),
    (AnswerFormatBroken("llm", "x"), 502, 1011),
    (InvalidTokens("tts", "x"), 502, 1011),
    (EngineRefused("asr", "sherpa", "x"), 501, 1011),
    (EngineUnreachable("llm", "x"), 502, 1011),
    (EngineTimeout("asr", "x"), 504, 1011),
]


@pytest.mark.parametrize(("error", "status", "close_code"), TABLE)
def test_every_error_has_a_status_and_a_close_code(
    error: EarshotError, status: int, close_code: int
) -> None:
    assert status_of(error) == status
    assert close_code_of(error) == close_code


def test_every_error_class_is_mapped() -> None:
    def below(cls: type[EarshotError]) -> set[type[EarshotError]]:
        return {cls}.union(*(below(sub) for sub in cls.__subclasses__()))

    in_core = {cls for cls in below(EarshotError) if cls.__module__ == "core.errors"}
    assert in_core == {type(error) for error, _, _ in TABLE}


def test_error_responses_have_retry_after_code_and_param() -> None:
    assert error_response(OverloadedError("x", retry_after_s=7)).headers["Retry-After"] == "7"
    assert error_response(EarshotError("x")).headers["x-should-retry"] == "false"
    assert "x-should-retry" not in error_response(EngineCrashed("asr", "x")).headers
    assert error_response(Unauthorized("x")).headers["WWW-Authenticate"] == "Bearer"
    body = error_response(RequestError("no such voice", code="voice", param="audio.voice")).body
    assert body == (
        b'{"error":{"message":"no such voice","type":"invalid_request_error","code":"voice",'
        b'"param":"audio.voice"}}'
    )


@pytest.mark.parametrize(
    ("header", "is_kept"),
    [
        ("abc-123", True),
        ("x" * 64, True),
        ("x" * 65, False),
        ("", False),
        (None, False),
        ("with space", False),
        ("line\nbreak", False),
        ("ümlaut", False),
    ],
)
def test_every_response_has_a_request_id(header: str | None, is_kept: bool) -> None:
    found = request_id_of(header)
    assert (found == header) is is_kept
    assert is_kept or found.startswith("req_")


def test_a_clients_request_id_is_returned_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    from server.runtime.logs import _add_request_id

    caplog.handler.addFilter(_add_request_id)
    caplog.set_level(logging.INFO)

    async def run() -> None:
        async with serving([route("/hello", hello), route("/bug", raising(ValueError("b")))]) as c:
            given = await c.get("/hello", headers={"X-Request-ID": "mine-1"})
            made = await c.get("/hello")
            bug = await c.get("/bug", headers={"X-Request-ID": "mine-2"})
            assert given.headers["X-Request-ID"] == "mine-1"
            assert made.headers["X-Request-ID"].startswith("req_")
            assert bug.headers["X-Request-ID"] == "mine-2"

    asyncio.run(run())
    ids = [getattr(record, "request_id", None) for record in caplog.records]
    assert "mine-1" in ids
    assert ids.count("mine-2") == 2  # the traceback, and the request's line


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nCookie: secret-" + b"x" * 10_000 + b"\r\n\r\n", 400),
        (b"secret nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: secret\r\n\r\n", 400),
    ],
)
def test_bytes_that_are_not_http_get_a_request_id_and_one_log_line(
    request_bytes: bytes, status: int
) -> None:
    log = io.StringIO()
    metrics = PrometheusMetrics()

    async def main() -> bytes:
        async with serving([route("/", hello)], metrics=metrics) as client:
            return await answer_to(client, request_bytes)

    set_up(LogConfig(), stream=log)
    head, body = asyncio.run(main()).decode().split("\r\n\r\n")
    assert head.startswith(f"HTTP/1.0 {status} ")
    assert json.loads(body)["error"]["code"] == "invalid_http"
    (made,) = [line[14:] for line in head.split("\r\n") if line.startswith("X-Request-ID: ")]
    (line,) = [line for line in log.getvalue().splitlines() if "not an HTTP request" in line]
    assert line.endswith(f"[{made}]")
    assert "secret" not in log.getvalue() + head + body
    assert b'code="invalid_http"} 1.0' in metrics.exposition()


@pytest.mark.parametrize("target", ["http://xn--/hello", "http://[v1.x]/hello", "http://h:1/hello"])
def test_a_request_target_may_be_an_absolute_url(target: str) -> None:
    async def run() -> None:
        async with serving([route("/hello", hello)]) as client:
            for host, status in (
                ("127.0.0.1", 200),
                ("evil.example", 403),
                ("127.0.0.1:65536", 403),
            ):
                head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                answer = await answer_to(client, head.encode())
                assert answer.startswith(f"HTTP/1.1 {status} ".encode()), (host, answer)

    asyncio.run(run())


def test_an_unexpected_error_is_a_500_with_only_the_request_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = PrometheusMetrics()

    async def run() -> None:
        async with serving(
            [route("/bug", raising(ValueError("inner secret")))], metrics=metrics
        ) as c:
            response = await c.get("/bug")
            error = await error_of(response)
            assert response.status == 500
            assert error["code"] == "internal"
            assert error["type"] == "server_error"
            assert response.headers["X-Request-ID"] in error["message"]
            assert "inner secret" not in error["message"]

    asyncio.run(run())
    assert any(record.exc_info for record in caplog.records)
    assert b'earshot_errors_total{code="internal"} 1.0' in metrics.exposition()
    assert b'earshot_http_requests_total{route="/bug",status="500"} 1.0' in metrics.exposition()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ExceptionGroup("g", [Conflict("c")]), 409, "conflict"),
        (ExceptionGroup("g", [ExceptionGroup("h", [Conflict("c")])]), 409, "conflict"),
        (ExceptionGroup("g", [Conflict("c"), ValueError("bug")]), 500, "internal"),
        (aioweb.HTTPBadRequest(text="no"), 400, "invalid_request"),
    ],
)
def test_exception_groups_and_errors_of_aiohttp_are_mapped(
    error: Exception, status: int, code: str
) -> None:
    async def run() -> None:
        async with serving([route("/x", raising(error))]) as client:
            response = await client.get("/x")
            assert (response.status, (await error_of(response))["code"]) == (status, code)

    asyncio.run(run())


def test_unknown_paths_and_wrong_methods_have_json_errors() -> None:
    async def run() -> None:
        routes = [
            route("/hello", hello),
            route("/old", raising(aioweb.HTTPFound("/hello"))),
        ]
        async with serving(routes) as client:
            missing = await client.get("/nothing")
            assert (missing.status, (await error_of(missing))["code"]) == (404, "not_found")
            wrong = await client.post("/hello")
            assert (wrong.status, (await error_of(wrong))["code"]) == (405, "method_not_allowed")
            assert wrong.headers["Allow"] == "GET,HEAD"
            assert (await client.head("/hello")).status == 200
            moved = await client.get("/old", allow_redirects=False)
            assert (moved.status, moved.headers["Location"]) == (302, "/hello")

    asyncio.run(run())


def test_bodies_above_the_limit_are_refused() -> None:
    async def read(request: aioweb.Request) -> aioweb.Response:
        return aioweb.Response(text=str(len(await request.read())))

    async def chunks() -> object:
        for _ in range(3):
            yield b"x" * (MAX_BODY_BYTES // 2)

    async def run() -> None:
        async with serving([route("/read", read, method="POST")]) as client:
            fits = await client.post("/read", data=b"x" * MAX_BODY_BYTES)
            assert await fits.text() == str(MAX_BODY_BYTES)
            for data in (b"x" * (MAX_BODY_BYTES + 1), chunks()):
                response = await client.post("/read", data=data)
                assert (response.status, (await error_of(response))["code"]) == (413, "too_large")

    asyncio.run(run())


def test_an_open_websocket_is_closed_with_the_code_of_its_error() -> None:
    async def fail(request: aioweb.Request) -> aioweb.StreamResponse:
        socket = aioweb.WebSocketResponse()
        await socket.prepare(request)
        raise OverloadedError("later", retry_after_s=1)

    async def run() -> None:
        headers = {"X-Request-ID": "mine-3"}
        async with (
            serving([route("/ws", fail)]) as client,
            client.ws_connect("/ws", headers=headers) as socket,
        ):
            assert socket._response.headers["X-Request-ID"] == "mine-3"
            message = await socket.receive(timeout=30)
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1013)

    asyncio.run(run())


def test_a_response_that_fails_halfway_does_not_look_complete() -> None:
    async def fail(request: aioweb.Request) -> aioweb.StreamResponse:
        response = aioweb.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        raise EngineCrashed("asr", "x")

    async def run() -> None:
        async with serving([route("/stream", fail)]) as client:
            with pytest.raises((ClientPayloadError, ClientConnectionError)):
                await (await client.get("/stream")).read()

    asyncio.run(run())


def test_a_body_that_is_not_gzip_is_not_logged_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not even for a client without a key, which could fill the log otherwise."""

    async def run() -> None:
        async with serving(
            [route("/hello", hello)], gate=AccessGate(is_local=False, key=KEY)
        ) as client:
            gzip = {"Content-Encoding": "gzip"}
            refused = await client.post("/hello", data=b"no gzip" * 99, headers=gzip)
            assert refused.status == 401
            assert (await client.get("/hello")).status == 401

    asyncio.run(run())
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("error", "code", "has_traceback"),
    [(EngineCrashed("asr", "x"), "engine_crashed", False), (ValueError("b"), "internal", True)],
)
def test_a_failed_background_task_of_a_request_ends_only_itself(
    error: Exception, code: str, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = PrometheusMetrics()

    async def work() -> None:
        raise ExceptionGroup("of its task group", [error])

    asyncio.run(ErrorBoundary(metrics)(work(), "call rtc_1"))
    assert f'earshot_errors_total{{code="{code}"}} 1.0' in metrics.exposition().decode()
    assert any(record.exc_info for record in caplog.records) is has_traceback
    assert "rtc_1" in caplog.text


def test_a_route_that_streams_may_accept_larger_bodies() -> None:
    async def streamed(request: aioweb.Request) -> aioweb.Response:
        total = 0
        async for chunk in request.content.iter_any():
            total += len(chunk)
        return aioweb.Response(text=str(total))

    async def scene() -> None:
        large = replace(route("/large", streamed, method="POST"), max_body_bytes=200_000)
        plain = route("/plain", streamed, method="POST")
        async with serving([large, plain]) as client:
            fits = await client.post("/large", data=bytes(200_000))
            assert await fits.text() == "200000"
            for path, size, limit in (("/large", 200_001, 200_000), ("/plain", 200_000, 100_000)):
                refused = await client.post(path, data=bytes(size))
                assert refused.status == 413
                assert str(limit) in (await error_of(refused))["message"]

    asyncio.run(scene())


def test_a_route_may_accept_only_smaller_bodies_even_chunked() -> None:
    async def read(request: aioweb.Request) -> aioweb.Response:
        return aioweb.Response(text=str(len(await request.read())))

    async def chunks(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield bytes(100)

    async def scene() -> None:
        small = replace(route("/small", read, method="POST"), max_body_bytes=1000)
        async with serving([small]) as client:
            bodies: list[bytes | AsyncIterator[bytes]] = [bytes(1000), chunks(10)]
            for data in bodies:
                assert await (await client.post("/small", data=data)).text() == "1000"
            bodies = [bytes(1001), chunks(11)]
            for data in bodies:
                refused = await client.post("/small", data=data)
                assert (refused.status, (await error_of(refused))["code"]) == (413, "too_large")

    asyncio.run(scene())


def test_an_event_stream_does_not_delay_the_servers_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_file, "CLOSE_TIMEOUT_S", 3600)

    async def watch(request: aioweb.Request) -> aioweb.StreamResponse:
        response = aioweb.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async def main() -> None:
        kind = "text/event-stream"
        one = Route(
            "GET", "/watch", watch, "A test.", "test", response_content_type=kind, scope="talk"
        )
        async with asyncio.timeout(30), serving([one]) as client:
            await client.get("/watch")

    asyncio.run(main())


def test_an_aiohttp_without_a_name_that_we_need_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.check_http_names()
    gone = PrivateName("aiohttp.web_protocol:RequestHandler", "_letters", "")
    monkeypatch.setattr(connection, "HTTP_NAMES", (gone,))
    with pytest.raises(EarshotError, match=r"aiohttp cannot be used: .*_letters is missing"):
        connection.check_http_names()
