"""Errors into answers, request ids, size limits, and the gate before routing."""

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
    ClientSession,
    WSMsgType,
    encode_basic_auth,
)
from aiohttp import web as aioweb

from core.errors import (
    ConfigError,
    Conflict,
    ContextExceeded,
    EarshotError,
    EngineCrashed,
    EngineError,
    EngineMissing,
    EngineTimeout,
    EngineUnreachable,
    Forbidden,
    NotFound,
    Overloaded,
    RemoteProtocolError,
    RequestError,
    StorageFailed,
    Superseded,
    TooLarge,
    Unauthorized,
)
from core.http import Route
from server import app as app_file
from server import wrong_keys
from server.auth import Gate
from server.config import LogConfig
from server.edge import Contained, close_code_of, error_response, request_id_of, status_of
from server.logs import set_up
from server.metrics import PrometheusMetrics
from tests.server.http import KEY, MAX_BODY_BYTES, error_of, hello, raising, route, serving

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
    (TooLarge("x"), 413, 1009),
    (Overloaded("x", retry_after_s=7), 503, 1013),
    (Superseded("x"), 503, 1013),
    (StorageFailed("x"), 503, 1013),
    (EngineError("asr", "x"), 502, 1011),
    (EngineMissing("asr", "x"), 501, 1011),
    (EngineCrashed("asr", "x"), 502, 1011),
    (ContextExceeded("llm", "x"), 502, 1011),
    (EngineUnreachable("llm", "x"), 502, 1011),
    (EngineTimeout("asr", "x"), 504, 1011),
]


@pytest.mark.parametrize(("error", "status", "close_code"), TABLE)
def test_every_error_has_a_status_and_a_close_code(
    error: EarshotError, status: int, close_code: int
) -> None:
    assert status_of(error) == status
    assert close_code_of(error) == close_code


def test_no_class_of_the_tree_is_forgotten() -> None:
    def below(cls: type[EarshotError]) -> set[type[EarshotError]]:
        return {cls}.union(*(below(sub) for sub in cls.__subclasses__()))

    in_core = {cls for cls in below(EarshotError) if cls.__module__ == "core.errors"}
    assert in_core == {type(error) for error, _, _ in TABLE}


def test_answers_say_when_to_come_back_and_what_was_wrong() -> None:
    assert error_response(Overloaded("x", retry_after_s=7)).headers["Retry-After"] == "7"
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
def test_request_ids(header: str | None, is_kept: bool) -> None:
    found = request_id_of(header)
    assert (found == header) is is_kept
    assert is_kept or found.startswith("req_")


def test_request_ids_are_echoed_and_in_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    from server.logs import _add_request_id

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
def test_what_is_no_http_gets_an_id_and_one_line_without_its_bytes(
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
    (line,) = [line for line in log.getvalue().splitlines() if "no HTTP request" in line]
    assert line.endswith(f"[{made}]")
    assert "secret" not in log.getvalue() + head + body
    assert b'code="invalid_http"} 1.0' in metrics.exposition()


async def answer_to(client: ClientSession, request_bytes: bytes) -> bytes:
    """All that comes until the server closes the connection."""
    url = client._base_url
    assert url is not None
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(request_bytes)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer


@pytest.mark.parametrize("target", ["http://xn--/hello", "http://[v1.x]/hello", "http://h:1/hello"])
def test_of_a_target_that_is_a_whole_url_the_path_is_answered(target: str) -> None:
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


def test_a_bug_is_a_500_that_tells_nothing_but_the_id(caplog: pytest.LogCaptureFixture) -> None:
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
def test_groups_and_the_web_librarys_errors(error: Exception, status: int, code: str) -> None:
    async def run() -> None:
        async with serving([route("/x", raising(error))]) as client:
            response = await client.get("/x")
            assert (response.status, (await error_of(response))["code"]) == (status, code)

    asyncio.run(run())


def test_unknown_paths_wrong_methods_and_redirects() -> None:
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


def test_a_websocket_under_way_is_closed_with_the_code() -> None:
    async def fail(request: aioweb.Request) -> aioweb.StreamResponse:
        socket = aioweb.WebSocketResponse()
        await socket.prepare(request)
        raise Overloaded("later", retry_after_s=1)

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


def test_half_an_answer_does_not_look_like_a_whole_one() -> None:
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


def test_strangers_get_401_before_routing() -> None:
    gate = Gate(is_local=False, key=KEY)
    routes = [route("/hello", hello), route("/open", hello, is_public=True)]

    async def run() -> None:
        async with serving(routes, gate=gate) as client:
            for path in ("/hello", "/nothing"):
                response = await client.get(path)
                assert (response.status, (await error_of(response))["code"]) == (
                    401,
                    "invalid_api_key",
                )
            assert (await client.post("/hello")).status == 401
            assert (await client.get("/open")).status == 200
            keyed = {"Authorization": f"Bearer {KEY}"}
            assert (await client.get("/hello", headers=keyed)).status == 200
            assert (await client.get("/nothing", headers=keyed)).status == 404
            with_protocol = {"Sec-WebSocket-Protocol": f"realtime, openai-insecure-api-key.{KEY}"}
            assert (await client.get("/hello", headers=with_protocol)).status == 200

    asyncio.run(run())


def test_the_key_may_come_as_a_password_and_only_the_apis_of_devices_ask_for_one() -> None:
    gate = Gate(is_local=False, key=KEY)

    def password(key: str) -> dict[str, str]:
        return {"Authorization": encode_basic_auth("anna", key)}

    async def run() -> None:
        async with serving([route("/api/hello", hello)], gate=gate) as client:
            for path, schemes in (("/api/hello", ["Bearer", "Basic"]), ("/hello", ["Bearer"])):
                refused = await client.get(path, headers=password("wrong"))
                offered = refused.headers.getall("WWW-Authenticate")
                assert (refused.status, [offer.split()[0] for offer in offered]) == (401, schemes)
            with_password = await client.get("/api/hello", headers=password(KEY))
            assert with_password.status == 200

    asyncio.run(run())


def test_a_body_that_is_no_gzip_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    """Not even of one without a key: it could fill the log."""

    async def run() -> None:
        async with serving([route("/hello", hello)], gate=Gate(is_local=False, key=KEY)) as client:
            gzip = {"Content-Encoding": "gzip"}
            refused = await client.post("/hello", data=b"no gzip" * 99, headers=gzip)
            assert refused.status == 401
            assert (await client.get("/hello")).status == 401

    asyncio.run(run())
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == []


def test_foreign_hosts_are_forbidden() -> None:
    async def run() -> None:
        async with serving([route("/hello", hello, is_public=True)]) as client:
            response = await client.get("/hello", headers={"Host": "evil.example"})
            assert (response.status, (await error_of(response))["code"]) == (403, "forbidden_host")

    asyncio.run(run())


PROXIED = (
    "Via",
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "x-forwarded-host",
    "X-Forwarded",
    "CF-Connecting-IP",
    "Cf-Ray",
    "CDN-Loop",
    "True-Client-IP",
    "X-Client-IP",
    "X-Real-IP",
    "X-Cluster-Client-Ip",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Tailscale-User-Login",
    "X-Envoy-External-Address",
    "X-Original-Host",
    "X-Original-Forwarded-For",
    "X-Azure-ClientIP",
    "X-Amzn-Trace-Id",
    "X-Auth-Request-User",
    "Remote-User",
)


def test_whatever_a_proxy_adds_the_key_is_needed() -> None:
    async def run() -> None:
        async with serving([route("/hello", hello)]) as client:
            for name in PROXIED:
                assert (await client.get("/hello", headers={name: "x"})).status == 401, name
                keyed = {name: "x", "Authorization": f"Bearer {KEY}"}
                assert (await client.get("/hello", headers=keyed)).status == 200, name
            usual = {"Accept": "*/*", "X-Request-ID": "1", "X-Stainless-Lang": "python"}
            assert (await client.get("/hello", headers=usual)).status == 200
            # nginx as it comes: no header, but HTTP/1.0.
            head = b"GET /hello HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            assert (await answer_to(client, head)).startswith(b"HTTP/1.0 401 ")

    asyncio.run(run())


def test_a_page_of_another_site_neither_loads_nor_shows_anything() -> None:
    async def run() -> None:
        routes = [
            route("/hello", hello),
            route("/open", hello, is_public=True),
            route("/bug", raising(ValueError("b"))),
        ]
        async with serving(routes) as client:
            for site, status in (
                ("cross-site", 403),
                ("same-site", 403),
                ("same-origin", 200),
                ("none", 200),
            ):
                headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
                assert (await client.get("/hello", headers=headers)).status == status, site
                assert (await client.get("/open", headers=headers)).status == 200
            for path in ("/hello", "/open", "/bug", "/nothing"):
                answer = await client.get(path)
                assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin", path
                assert answer.headers["X-Content-Type-Options"] == "nosniff", path
            answered = await answer_to(client, b"nonsense\r\n\r\n")
            assert b"Cross-Origin-Resource-Policy: same-origin\r\n" in answered

    asyncio.run(run())


@pytest.mark.parametrize(
    ("origins", "origin", "is_let_in"),
    [
        ({"*"}, "https://app.example", False),
        ({"https://app.example"}, "https://app.example", True),
        ({"*", "https://app.example"}, "https://app.example", True),
        ({"https://app.example"}, "https://evil.example", False),
    ],
)
def test_only_sites_that_are_named_are_let_into_this_network(
    origins: set[str], origin: str, is_let_in: bool
) -> None:
    gate = Gate(is_local=True, key=KEY, origins=frozenset(origins))
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Private-Network": "true",
    }

    async def run() -> None:
        async with serving([route("/hello", hello)], gate=gate) as client:
            answer = await client.options("/hello", headers=asked)
            found = answer.headers.get("Access-Control-Allow-Private-Network")
            assert found == ("true" if is_let_in else None)

    asyncio.run(run())


def test_foreign_sites_with_the_key_may_read_the_answer() -> None:
    site = {"Origin": "https://app.example"}

    async def run() -> None:
        async with serving([route("/hello", hello)]) as client:
            preflight = await client.options(
                "/hello", headers={**site, "Access-Control-Request-Method": "GET"}
            )
            assert preflight.status == 204
            assert preflight.headers["Access-Control-Allow-Origin"] == site["Origin"]
            allowed = preflight.headers["Access-Control-Allow-Headers"].lower()
            assert {"authorization", "x-audio-sample-rate"} <= set(allowed.split(", "))
            refused = await client.get("/hello", headers=site)
            assert refused.status == 401
            keyed = await client.get("/hello", headers={**site, "Authorization": f"Bearer {KEY}"})
            assert keyed.status == 200
            assert keyed.headers["Access-Control-Allow-Origin"] == site["Origin"]
            assert "Location" in keyed.headers["Access-Control-Expose-Headers"]
            own = await client.get("/hello")
            assert "Access-Control-Allow-Origin" not in own.headers

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "code", "has_traceback"),
    [(EngineCrashed("asr", "x"), "engine_crashed", False), (ValueError("b"), "internal", True)],
)
def test_work_beyond_its_request_fails_alone(
    error: Exception, code: str, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = PrometheusMetrics()

    async def work() -> None:
        raise ExceptionGroup("of its task group", [error])

    asyncio.run(Contained(metrics)(work(), "call rtc_1"))
    assert f'earshot_errors_total{{code="{code}"}} 1.0' in metrics.exposition().decode()
    assert any(record.exc_info for record in caplog.records) is has_traceback
    assert "rtc_1" in caplog.text


def test_a_route_may_take_larger_bodies_that_it_reads_itself() -> None:
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


def test_a_route_may_take_smaller_bodies_also_in_chunks() -> None:
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


def test_a_watch_does_not_hold_a_server_that_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_file, "CLOSE_TIMEOUT_S", 3600)

    async def watch(request: aioweb.Request) -> aioweb.StreamResponse:
        response = aioweb.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async def main() -> None:
        kind = "text/event-stream"
        one = Route("GET", "/watch", watch, "A test.", "test", response_content_type=kind)
        async with asyncio.timeout(30), serving([one]) as client:
            await client.get("/watch")

    asyncio.run(main())


def test_wrong_keys_are_slowed_down_and_the_right_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also on public paths, which tell more to who has the key; no key at all costs nothing."""
    monkeypatch.setattr(wrong_keys, "MAX_WAIT_S", 0.1)
    monkeypatch.setattr(app_file, "CLOSE_TIMEOUT_S", 0.05)
    routes = [route("/hello", hello), route("/open", hello, is_public=True)]
    wrong = {"Authorization": "Bearer wrong-key-0123456789"}
    right = {"Authorization": f"Bearer {KEY}"}

    async def scene() -> None:
        async with serving(routes, gate=Gate(is_local=False, key=KEY)) as client:
            loop = asyncio.get_running_loop()
            for _ in range(wrong_keys.FREE - 1):
                assert (await client.get("/hello", headers=wrong)).status == 401
            assert (await client.get("/open", headers=wrong)).status == 200
            began = loop.time()
            slow = await client.get("/nowhere", headers=wrong)
            assert (slow.status, (await error_of(slow))["code"]) == (429, "too_many_guesses")
            assert "Retry-After" in slow.headers
            assert (await client.get("/open", headers=wrong)).status == 200
            assert loop.time() - began >= 0.2
            monkeypatch.setattr(wrong_keys, "MAX_WAIT_S", 3600.0)
            held = asyncio.create_task(client.get("/hello", headers=wrong))
            await asyncio.sleep(0)
            for _ in range(3):
                assert (await client.get("/hello", headers=right)).status == 200
                assert (await client.get("/hello")).status == 401
            assert not held.done()
            held.cancel()

    asyncio.run(scene())
