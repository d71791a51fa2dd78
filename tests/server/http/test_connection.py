"""Slow connections, bodies that no handler reads, and bytes that are not HTTP."""

import asyncio
import gzip
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as aioweb

from core.http.routes import Route
from core.net import acceptor
from core.net.acceptor import NO_LIMIT, AddressLimit, exempt_addresses, open_acceptors
from server.http import connection, edge
from server.http.app import build, run_application
from server.http.auth import AccessGate
from server.net.listeners import BACKLOG, UNACKNOWLEDGED_TIMEOUT_MS, bind
from server.net.tls import open_tls
from server.runtime.metrics import PrometheusMetrics
from tests.server.http.harness import KEY, MAX_BODY_BYTES, hello, route

pytestmark = pytest.mark.live

Talk = tuple[asyncio.StreamReader, asyncio.StreamWriter]
KEYED = f"Authorization: Bearer {KEY}\r\n".encode()
HOST = b"Host: 127.0.0.1\r\n"
SOON_S = 20.0
"For what takes milliseconds on an idle machine."


async def read_all(request: aioweb.Request) -> aioweb.Response:
    return aioweb.Response(text=str(len(await request.read())))


@asynccontextmanager
async def served(
    *routes: Route, limit: AddressLimit = NO_LIMIT, context: ssl.SSLContext | None = None
) -> AsyncIterator[Callable[[], Awaitable[Talk]]]:
    """Yields a function that opens plain connections to a server that needs the key."""
    metrics = PrometheusMetrics()
    gate = AccessGate(is_local=False, key=KEY)
    all_routes = (route("/read", read_all, method="POST"), route("/hello", hello), *routes)
    app = build(
        all_routes, gate, metrics, max_body_bytes=MAX_BODY_BYTES, is_tls=context is not None
    )
    sockets = bind("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> Talk:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    async with asyncio.timeout(SOON_S), run_application(app, sockets, context, metrics, limit):
        yield connect
        for writer in writers:
            writer.close()


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Reads until the server ends the connection, in whatever way."""
    found = b""
    try:
        while piece := await reader.read(65_536):
            found += piece
    except ConnectionError:
        pass
    return found


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP, identity"])
def test_a_compressed_body_is_refused_by_name(encoding: str) -> None:
    async def main() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(
                b"POST /read HTTP/1.1\r\nContent-Length: 9\r\n"
                b"Content-Encoding: %s\r\n%s%s\r\nnine byte" % (encoding.encode(), HOST, KEYED)
            )
            answer = await head_of(reader)
            assert answer.startswith(b"HTTP/1.1 415 ")
            body = await reader.read(1000)
            assert b"unsupported_content_encoding" in body
            assert encoding.lower().encode() in body

    asyncio.run(main())


def test_a_body_without_encoding_may_say_so() -> None:
    async def main() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(
                b"POST /read HTTP/1.1\r\nContent-Length: 4\r\n"
                b"Content-Encoding: identity\r\n%s%s\r\nfour" % (HOST, KEYED)
            )
            assert (await head_of(reader)).startswith(b"HTTP/1.1 200 ")

    asyncio.run(main())


REFUSED = {
    "no key": (401, HOST + b"Content-Length: 90000\r\n"),
    "no key, compressed": (401, HOST + b"Content-Length: 90000\r\nContent-Encoding: gzip\r\n"),
    "no key, chunked": (401, HOST + b"Transfer-Encoding: chunked\r\n"),
    "a foreign host": (403, b"Host: evil.example\r\nContent-Length: 90000\r\n"),
    "too large": (413, HOST + KEYED + b"Content-Length: 9000000\r\n"),
    "compressed": (415, HOST + KEYED + b"Content-Length: 90000\r\nContent-Encoding: gzip\r\n"),
}


@pytest.mark.parametrize(("status", "headers"), REFUSED.values(), ids=REFUSED)
def test_a_body_after_a_refusal_is_not_read(
    status: int, headers: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends, long before the body does."""
    monkeypatch.setattr(connection, "LINGER_S", 0.05)

    async def main() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(b"POST /read HTTP/1.1\r\n%s\r\n" % headers)
            answer = await head_of(reader)
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert b"\r\nConnection: close\r\n" in answer
            await rest_of(reader)

    asyncio.run(main())


def test_a_refused_body_is_neither_inflated_nor_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = 0
    plain = aioweb.RequestHandler.data_received

    def counted(self: aioweb.RequestHandler, data: bytes) -> None:
        nonlocal fed
        fed += len(data)
        plain(self, data)

    monkeypatch.setattr(aioweb.RequestHandler, "data_received", counted)
    bomb = gzip.compress(bytes(5_000_000), 1)
    length = MAX_BODY_BYTES  # not refused for it
    header = b"POST /read HTTP/1.1\r\n%sContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % (
        HOST,
        length,
    )

    async def main() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(header)
            assert (await head_of(reader)).startswith(b"HTTP/1.1 401 ")
            writer.write(bomb)
            await rest_of(reader)

    asyncio.run(main())
    assert fed == len(header)


def test_100_continue_is_sent_only_by_handlers_that_read_the_body() -> None:
    """`curl` waits for `100 Continue` before it sends a large body."""

    async def main() -> None:
        start = b"POST /read HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n" + HOST
        async with served() as connect:
            reader, writer = await connect()
            writer.write(start + b"\r\n")
            assert (await head_of(reader)).startswith(b"HTTP/1.1 401 ")
            reader, writer = await connect()
            writer.write(start + KEYED + b"\r\n")
            assert await head_of(reader) == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"four")
            assert (await head_of(reader)).startswith(b"HTTP/1.1 200 ")

    asyncio.run(main())


def test_a_large_body_without_a_key_gets_the_401_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server discards what is still arriving: a reset could overtake the response."""
    monkeypatch.setattr(connection, "LINGER_S", 0.2)

    async def main() -> None:
        async with served() as connect:
            reader, writer = await connect()
            size = MAX_BODY_BYTES
            writer.write(b"POST /read HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n" % (HOST, size))
            writer.write(bytes(size // 2))
            assert b"invalid_api_key" in await reader.read()

    asyncio.run(main())


BEGUN = {
    "nothing": b"",
    "half a line": b"GET /hel",
    "half a line of speech": b"GET /api/tts?text=a",
    "half a header": b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\nX-",
}


@pytest.mark.parametrize("begun", BEGUN.values(), ids=BEGUN)
def test_a_missing_header_ends_the_connection(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEADER_TIMEOUT_S", 0.05)

    async def main() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(begun)
            assert await rest_of(reader) == b""

    asyncio.run(main())


def test_a_header_that_trickles_in_gets_no_extra_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_TIMEOUT_S", 0.1)

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /hello HTTP/1.1\r\n")
        while not writer.is_closing():
            writer.write(b"X-A: b\r\n")
            await asyncio.sleep(0.02)

    async def main() -> None:
        async with served() as connect, asyncio.TaskGroup() as tasks:
            reader, writer = await connect()
            dripping = tasks.create_task(drip(writer))
            assert await rest_of(reader) == b""
            dripping.cancel()

    asyncio.run(main())


def test_a_second_request_has_the_same_header_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(b"GET /hello HTTP/1.1\r\n%s%s\r\n" % (HOST, KEYED))
            await reader.readuntil(b"hello")
            monkeypatch.setattr(connection, "HEADER_TIMEOUT_S", 0.05)
            writer.write(b"GET /hello HT")
            assert await rest_of(reader) == b""

    asyncio.run(main())


def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**connection.OPTIONS, "keepalive_timeout": 0.05}
    assert connection.OPTIONS["keepalive_timeout"] == 75
    monkeypatch.setattr(connection, "OPTIONS", options)

    async def main() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(b"GET /hello HTTP/1.1\r\n%s%s\r\n" % (HOST, KEYED))
            await reader.readuntil(b"hello")
            assert await rest_of(reader) == b""

    asyncio.run(main())


@pytest.mark.parametrize(
    "start", [b"Content-Length: 40\r\n\r\nfour", b"Transfer-Encoding: chunked\r\n\r\n4\r\nfo"]
)
def test_a_body_that_stalls_gets_an_error_and_ends_the_connection(
    start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(connection, "LINGER_S", 0.05)

    async def main() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(b"POST /read HTTP/1.1\r\n" + HOST + KEYED + start)
            answer = await rest_of(reader)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"upload_stalled" in answer

    asyncio.run(main())


def test_slow_bodies_and_slow_responses_are_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HEADER_TIMEOUT_S", "BODY_TIMEOUT_S"):
        monkeypatch.setattr(connection, name, 0.2)

    async def slow(request: aioweb.Request) -> aioweb.Response:
        text = await request.text()
        await asyncio.sleep(0.5)
        return aioweb.Response(text=text)

    async def main() -> None:
        async with served(route("/slow", slow, method="POST")) as connect:
            reader, writer = await connect()
            writer.write(b"POST /slow HTTP/1.1\r\nContent-Length: 6\r\n%s%s\r\n" % (HOST, KEYED))
            for byte in b"a word"[:6]:
                await asyncio.sleep(0.05)
                writer.write(bytes([byte]))
            assert (await head_of(reader)).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(6) == b"a word"

    asyncio.run(main())


def test_a_body_waits_until_its_handler_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client cannot send meanwhile, because its connection is paused."""
    monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 0.05)
    size = 4_000_000

    async def late(request: aioweb.Request) -> aioweb.Response:
        await asyncio.sleep(0.3)
        total = 0
        async for piece in request.content.iter_any():
            total += len(piece)
        return aioweb.Response(text=str(total))

    large = Route("POST", "/late", late, "A test.", "test", max_body_bytes=size, scope="talk")

    async def main() -> None:
        async with served(large) as connect:
            reader, writer = await connect()
            writer.write(b"POST /late HTTP/1.1\r\n%s%s" % (HOST, KEYED))
            writer.write(b"Content-Length: %d\r\n\r\n" % size + bytes(size))
            assert (await head_of(reader)).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(len(str(size))) == str(size).encode()

    asyncio.run(main())


def test_an_open_websocket_is_exempt_from_the_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADER_TIMEOUT_S", "BODY_TIMEOUT_S"):
        monkeypatch.setattr(connection, name, 0.05)
    text = b"\x81\x82\0\0\0\0hi"

    async def echo(request: aioweb.Request) -> aioweb.StreamResponse:
        ws = aioweb.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            await ws.send_str(message.data)
        return ws

    async def main() -> None:
        async with served(route("/echo", echo)) as connect:
            reader, writer = await connect()
            writer.write(
                b"GET /echo HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
                b"%s%s\r\n" % (HOST, KEYED)
            )
            assert (await head_of(reader)).startswith(b"HTTP/1.1 101 ")
            for _ in range(3):
                await asyncio.sleep(0.1)
                writer.write(text)
                assert await reader.readexactly(4) == b"\x81\x02hi"

    asyncio.run(main())


PARSE_ERRORS = {
    "no HTTP": b"nonsense\r\n\r\n",
    "a long line": b"GET / HTTP/1.1\r\nCookie: " + b"x" * 10_000 + b"\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a wrong length": b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    "another version": b"GET / HTTP/9.9\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a wrong header": b"GET / HTTP/1.1\r\nA b: c\r\n\r\n",
    "a wrong chunk": b"POST /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("sent", PARSE_ERRORS.values(), ids=PARSE_ERRORS)
def test_no_response_names_the_server_software(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 0.05)

    async def main() -> bytes:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(sent)
            return await rest_of(reader)

    answer = asyncio.run(main()).lower()
    assert answer.startswith(b"http/1.")
    assert answer.split(b" ")[1][:1] == b"4"
    for name in (b"server:", b"python", b"aiohttp", b"badstatusline", b"linetoolong", b"llhttp"):
        assert name not in answer


def test_an_error_below_the_application_does_not_name_the_software(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(b"GET /hello HTTP/1.1\r\n%s%s\r\n" % (HOST, KEYED))
            answer = await rest_of(reader)
            assert b" 500 " in answer.splitlines()[0]
            assert b'"internal"' in answer
            assert b"\nServer:" not in answer
            assert b"secret" not in answer

    def broken(*_: object) -> None:
        raise ValueError("secret")

    monkeypatch.setattr(edge, "_log", broken)
    asyncio.run(main())


def _of_one_address(count: int) -> AddressLimit:
    return AddressLimit(count, lambda _: False)


def test_connections_per_address_are_limited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with served(limit=_of_one_address(3)) as connect:
            held = [await connect() for _ in range(3)]
            for _ in range(5):
                reader, _ = await connect()
                assert await rest_of(reader) == b""
            held[0][1].close()
            answer = b""
            while not answer:  # the server has to notice that one has gone
                reader, writer = await connect()
                writer.write(b"GET /hello HTTP/1.0\r\n%s%s\r\n" % (HOST, KEYED))
                answer = await rest_of(reader)
            assert answer.endswith(b"hello")

    asyncio.run(main())
    lines = [one for one in caplog.messages if "3 connections" in one]
    assert len(lines) == 1
    assert "server.max_connections_per_address" in lines[0]


@pytest.mark.parametrize(
    ("host", "is_counted"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("192.0.2.7", True),
        ("fe80::1%eth0", True),
        ("::ffff:172.18.0.2", False),
        ("172.18.0.2", False),
    ],
)
def test_local_clients_and_trusted_proxies_have_no_connection_limit(
    host: str, is_counted: bool
) -> None:
    from server.net.allowlist import networks_of

    limit = AddressLimit(1, exempt_addresses(networks_of(["172.18.0.0/16"], "x")))

    async def main() -> None:
        left = limit.take(host)
        assert left is not None
        assert (limit.take(host) is None) is is_counted
        left()
        left()
        assert limit.take(host) is not None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.7", "::ffff:192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
        ("fd00:1:2:3::1", "fd00:1:2:3::2", False),
    ],
)
def test_a_public_ipv6_network_counts_as_one_address(one: str, other: str, is_same: bool) -> None:
    """A public IPv6 client has a whole /64; the machines of a home share one private network."""
    limit = _of_one_address(1)

    async def main() -> None:
        left = limit.take(one)
        assert left is not None
        assert (limit.take(other) is None) is is_same
        left()
        assert limit.take(one) is not None

    asyncio.run(main())


def test_exhausted_files_are_logged_and_connections_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor, "FILES_PAUSE_S", 0.05)

    class Scarce(socket.socket):
        """A socket whose system twice has no file descriptor left."""

        left = 2

        def accept(self) -> tuple[socket.socket, object]:
            if self.left:
                self.left -= 1
                raise OSError(24, "Too many open files")
            return super().accept()

    class Told(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(b"here")
            transport.close()

    async def main() -> None:
        (plain,) = bind("127.0.0.1", 0)
        scarce = Scarce(fileno=plain.detach())
        scarce.setblocking(False)
        async with asyncio.timeout(SOON_S), open_acceptors([scarce], lambda _: Told()):
            reader, writer = await asyncio.open_connection(*scarce.getsockname())
            assert await reader.read() == b"here"
            writer.close()

    asyncio.run(main())
    (line,) = [one for one in caplog.messages if "Too many open files" in one]
    assert "ulimit -n" in line


def test_the_backlog_is_the_systems_and_stuck_clients_are_dropped() -> None:
    assert BACKLOG >= 65_535
    (listening,) = bind("127.0.0.1", 0)
    with listening, socket.create_connection(listening.getsockname()) as client:
        accepted, _ = listening.accept()
        with accepted, client:
            option = socket.TCP_USER_TIMEOUT
            assert accepted.getsockopt(socket.IPPROTO_TCP, option) == UNACKNOWLEDGED_TIMEOUT_MS


def test_http_on_the_https_port_is_redirected(tmp_path: Path) -> None:
    tls = open_tls("auto", tmp_path, ["localhost"], [], datetime.now(UTC))
    assert tls is not None

    async def main() -> None:
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        async with served(context=tls.context) as connect:
            for method, body in ((b"GET", b""), (b"POST", b"Content-Length: 4\r\n\r\nfour")):
                reader, writer = await connect()
                target = b"/somewhere%20else?a=b&c=%2F"
                writer.write(method + b" " + target + b" HTTP/1.1\r\nHost: localhost:8443\r\n")
                writer.write(KEYED + (body or b"\r\n"))
                head = await head_of(reader)
                assert head.startswith(b"HTTP/1.1 308 ")
                assert b"\r\nLocation: https://localhost:8443" + target + b"\r\n" in head
                assert b"\nServer:" not in head
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n")
            assert (await head_of(reader)).startswith(b"HTTP/1.1 400 ")
            reader, writer = await connect()
            await writer.start_tls(trusting)
            writer.write(b"GET /hello HTTP/1.0\r\n%s%s\r\n" % (HOST, KEYED))
            assert (await rest_of(reader)).endswith(b"hello")

    asyncio.run(main())


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["nothing", "half a handshake"])
def test_a_missing_tls_handshake_ends_the_connection(
    sent: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tls = open_tls("auto", tmp_path, ["localhost"], [], datetime.now(UTC))
    assert tls is not None
    monkeypatch.setattr(acceptor, "GREETING_TIMEOUT_S", 0.1)
    limit = _of_one_address(1)

    async def main() -> None:
        async with served(limit=limit, context=tls.context) as connect:
            reader, writer = await connect()
            writer.write(sent)
            assert await rest_of(reader) == b""
            while (left := limit.take("127.0.0.1")) is None:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
            left()

    asyncio.run(main())
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
