"""Requests and WebSockets that one gateway passes on to another, over the real socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, UnixConnector, WSServerHandshakeError
from aiohttp import web as aioweb

from core.http.routes import Route
from server.gateways.channel import GatewayRow, Table
from server.gateways.forward import ENVELOPE, Envelope, Forwarder, only_gateways, socket_path
from server.gateways.member import serve_others
from server.gateways.routing import Fleet
from server.http.app import build, run_application
from server.http.auth import AccessGate
from server.net.listeners import bind
from server.runtime.metrics import PrometheusMetrics
from tests.server.http.harness import KEY, MAX_BODY_BYTES, answer_to, hello, route

pytestmark = pytest.mark.live

TOKEN = "t" * 64
TABLE = Table(
    (GatewayRow(1, 0, "ready", True, 0), GatewayRow(2, 1, "ready", False, 0)), is_started=True
)
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}


async def show(request: aioweb.Request) -> aioweb.Response:
    body = await request.read()
    return aioweb.json_response(
        {
            "query": request.rel_url.raw_query_string,
            "remote": request.remote,
            "scheme": request.scheme,
            "host": request.host,
            "bytes": len(body),
            "envelope": ENVELOPE in request.headers,
            "id": request.headers["X-Request-ID"],
        }
    )


async def moved(_: aioweb.Request) -> aioweb.Response:
    raise aioweb.HTTPFound("/elsewhere")


async def echo(request: aioweb.Request) -> aioweb.WebSocketResponse:
    ws = aioweb.WebSocketResponse(protocols=("realtime",))
    await ws.prepare(request)
    async for message in ws:
        if message.data == "end":
            await ws.close(code=4001, message=b"enough")
        elif isinstance(message.data, str):
            await ws.send_str(message.data)
        else:
            await ws.send_bytes(message.data)
    return ws


ROUTES = (
    route("/v1/devices", show, method="POST"),
    route("/v1/devices/moved", moved),
    route("/xiaozhi/socket", echo),
    route("/here", hello),
)


@asynccontextmanager
async def two_gateways(folder: Path, routes: tuple[Route, ...] = ROUTES) -> AsyncIterator[str]:
    """Yields the address of gateway 2; the requests of these tests are answered by gateway 1."""
    metrics = PrometheusMetrics()
    gate = AccessGate(is_local=False, key=KEY)
    async with AsyncExitStack() as stack:
        forwarders = []
        for own_number in (1, 2):
            fleet = Fleet(own_number)
            fleet.update(TABLE)
            forwarder = Forwarder(
                fleet,
                folder,
                TOKEN,
                named_key=lambda _: None,
                other_doors=frozenset(),
            )
            forwarders.append(await stack.enter_async_context(forwarder))
        home, other = (
            build(routes, gate, metrics, max_body_bytes=MAX_BODY_BYTES, before_gate=before)
            for before in (
                (only_gateways, forwarders[0].middleware()),
                (forwarders[1].middleware(),),
            )
        )
        await stack.enter_async_context(serve_others(home, metrics, socket_path(folder, 1), TOKEN))
        sockets = bind("127.0.0.1", 0)
        port = sockets[0].getsockname()[1]
        await stack.enter_async_context(run_application(other, sockets, None, metrics))
        yield f"http://127.0.0.1:{port}"


def against(folder: Path, scene: Callable[[ClientSession], Awaitable[None]]) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(30),
            two_gateways(folder) as url,
            ClientSession(url, headers=AUTHORIZED, connector=TCPConnector()) as http,
        ):
            await scene(http)

    asyncio.run(main())


def mode_of(path: str) -> int:
    return Path(path).stat().st_mode & 0o777


def remove(path: str) -> None:
    Path(path).unlink()


def test_a_request_arrives_as_its_client_sent_it(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 1000

    async def scene(http: ClientSession) -> None:
        headers = {"X-Request-ID": "mine"}
        for body in (b"x" * 3000, chunks()):
            path = "/v1/devices?name=a%20b"
            async with http.post(path, data=body, headers=headers) as answer:
                assert answer.status == 200
                assert answer.headers["X-Request-ID"] == "mine"
                assert await answer.json() == {
                    "query": "name=a%20b",
                    "remote": "127.0.0.1",
                    "scheme": "http",
                    "host": answer.url.authority,
                    "bytes": 3000,
                    "envelope": False,
                    "id": "mine",
                }
        async with http.get("/v1/devices/moved", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, "/elsewhere")

    against(tmp_path, scene)


def test_the_other_gateway_checks_the_key_before_the_body_is_invited(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(30),
            two_gateways(tmp_path) as url,
            ClientSession(url) as stranger,
        ):
            async with stranger.post("/v1/devices", data=b"x") as answer:
                assert answer.status == 401
            request = (
                "POST /v1/devices HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
                "Expect: 100-continue\r\nConnection: close\r\n{}\r\n"
            )
            refused = await answer_to(stranger, request.format("").encode())
            assert refused.startswith(b"HTTP/1.1 401 ")
            key = f"Authorization: Bearer {KEY}\r\n"
            admitted = answer_to(stranger, request.format(key).encode() + b"abcd")
            assert (await admitted).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")

    asyncio.run(main())


def test_only_gateways_may_use_the_socket(tmp_path: Path) -> None:
    """Neither another program of the user without the secret, nor a client that forges the
    header."""

    async def scene(http: ClientSession) -> None:
        path = socket_path(tmp_path, 1)
        assert mode_of(path) == 0o600
        async with ClientSession(connector=UnixConnector(path)) as local:
            for token in ("", "f" * 64):
                headers = {ENVELOPE: Envelope(1, "http", "10.0.0.1").header(token), **AUTHORIZED}
                async with local.get("http://gateway/here", headers=headers) as answer:
                    assert answer.status == 403
        forged = {ENVELOPE: Envelope(1, "https", "10.0.0.1").header(TOKEN)}
        async with http.post("/v1/devices", headers=forged) as answer:
            assert (await answer.json())["remote"] == "127.0.0.1"

    against(tmp_path, scene)


def test_a_websocket_passes_both_ways_and_keeps_its_close_code(tmp_path: Path) -> None:
    async def scene(http: ClientSession) -> None:
        protocols = ("other", "realtime")
        async with http.ws_connect("/xiaozhi/socket", protocols=protocols) as ws:
            assert ws.protocol == "realtime"
            await ws.send_str("text")
            assert await ws.receive_str() == "text"
            await ws.send_bytes(bytes(100_000))
            assert await ws.receive_bytes() == bytes(100_000)
            await ws.send_str("end")
            closing = await ws.receive()
            assert (closing.data, closing.extra) == (4001, "enough")
        with pytest.raises(WSServerHandshakeError) as caught:
            await http.ws_connect("/xiaozhi/socket", headers={"Authorization": "Bearer wrong"})
        assert caught.value.status == 401

    against(tmp_path, scene)


def test_a_gateway_that_has_ended_makes_its_callers_wait(tmp_path: Path) -> None:
    async def scene(http: ClientSession) -> None:
        remove(socket_path(tmp_path, 1))
        async with http.post("/v1/devices") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
            assert (await answer.json())["error"]["code"] == "gateway_restarting"
        async with http.get("/here") as answer:
            assert answer.status == 200

    against(tmp_path, scene)
