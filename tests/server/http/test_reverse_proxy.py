"""nginx in front of the server, configured as `docs/reverse-proxy.md` shows."""

import asyncio
import io
import os
import re
import shutil
import subprocess
import wave
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server.net.tls import open_tls
from tests.conftest import require
from tests.ports import reserved_port
from tests.server.http.harness import error_of
from tests.server.process import serving
from tests.shared import ROOT

pytestmark = pytest.mark.real

NAME = "voice.example"
KEY = "k" * 16
KEYED = {"Authorization": f"Bearer {KEY}"}
TIMEOUT_S = 30

AROUND = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log stderr;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {servers}
}}
"""

AS_IT_COMES = "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {upstream}; }} }}"
"A proxy as the first page of every tutorial has it: no header, HTTP/1.0."


def documented(folder: Path, port: int, upstream: str) -> str:
    """Returns the documented configuration with this machine's port, upstream and certificate."""
    page = (ROOT / "docs" / "reverse-proxy.md").read_text(encoding="utf-8")
    found: list[str] = re.findall(r"```nginx\n(.*?)```", page, re.DOTALL)
    (text,) = found
    open_tls("auto", folder, [NAME], [], datetime.now(UTC))
    for what, instead in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        (f"/etc/ssl/{NAME}.pem", f"{folder}/tls.pem"),
        (f"/etc/ssl/{NAME}.key", f"{folder}/tls.pem"),
        ("http://127.0.0.1:8080", upstream),
    ):
        assert text.count(what) == 1, what
        text = text.replace(what, instead)
    return text


@contextmanager
def nginx(folder: Path, port: int, servers: str) -> Iterator[None]:
    """Runs it; yields when it listens."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    require(program, "nginx is not installed")
    file = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""  # or it cannot read what the test made
    file.write_text(AROUND.format(folder=folder, servers=servers, user=user))
    with subprocess.Popen(
        [str(program), "-p", str(folder), "-e", "stderr", "-c", str(file)]
    ) as one:
        try:
            asyncio.run(_listens(port, one))
            yield
        finally:
            one.terminate()


async def _listens(port: int, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while process.poll() is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
    raise AssertionError("nginx has ended")


@dataclass(frozen=True, slots=True)
class Browser:
    """A client that resolves the public name to nginx."""

    session: aiohttp.ClientSession
    port: int

    @property
    def origin(self) -> str:
        return f"https://{NAME}:{self.port}"

    def ask(self, method: str, path: str, headers: Mapping[str, str] = KEYED, **more: Any) -> Any:
        named = {"Host": f"{NAME}:{self.port}", **headers}
        url = f"https://127.0.0.1:{self.port}{path}"
        return self.session.request(method, url, headers=named, ssl=False, **more)

    def socket(self, key: str, origin: str) -> Any:
        protocols = ("realtime", f"openai-insecure-api-key.{key}")
        return self.session.ws_connect(
            f"wss://127.0.0.1:{self.port}/v1/realtime?model=default",
            headers={"Host": f"{NAME}:{self.port}", "Origin": origin},
            protocols=protocols,
            ssl=False,
        )


def silence_wav(duration_s: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(32_000 * duration_s))
    return out.getvalue()


async def _is_let_in_by_the_key_alone(browser: Browser) -> None:
    async with browser.ask("GET", "/", {}) as page:
        assert (page.status, page.content_type) == (200, "text/html")
    async with browser.ask("GET", "/earshot/engines", {}) as refused:
        assert (refused.status, (await error_of(refused))["code"]) == (401, "invalid_api_key")
    own = {**KEYED, "Origin": browser.origin}
    for headers, status in (
        (KEYED, 200),
        (own, 200),
        ({**own, "Host": "evil.example"}, 403),
        ({**KEYED, "Origin": "https://evil.example"}, 403),
        ({**KEYED, "Origin": f"http://{NAME}:{browser.port}"}, 403),
    ):
        async with browser.ask("GET", "/earshot/engines", headers) as answer:
            assert answer.status == status, headers
    board = {"Device-Id": "a1:b2:c3:d4:e5:f6"}
    async with browser.ask("POST", "/xiaozhi/ota/", board, data=b"{}") as answer:
        assert (answer.status, (await error_of(answer))["code"]) == (403, "forbidden_network")


async def _converses_over_a_websocket(browser: Browser) -> None:
    async with browser.socket(KEY, browser.origin) as ws:
        assert ws.protocol == "realtime"
        assert (await ws.receive_json(timeout=TIMEOUT_S))["type"] == "session.created"
    for key, origin, status in (
        ("wrong", browser.origin, 401),
        (KEY, "https://evil.example", 403),
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            async with browser.socket(key, origin):
                pass
        assert error.value.status == status


async def _gets_events_as_they_are_made(browser: Browser) -> None:
    """The stream has a few bytes and goes on: a buffering proxy would hold them back."""
    async with asyncio.timeout(TIMEOUT_S), browser.ask("GET", "/earshot/home/events") as stream:
        assert stream.status == 200
        assert (await stream.content.readline()).strip()


async def _uploads_while_it_is_made(browser: Browser) -> None:
    """The body exceeds nginx's default limit; the server gets it before its last byte is sent."""
    form = aiohttp.FormData({"model": "default", "response_format": "json"})
    form.add_field("file", silence_wav(60), filename="a.wav")
    async with browser.ask("POST", "/v1/audio/transcriptions", data=form) as answer:
        assert (answer.status, "text" in await answer.json()) == (200, True)
    is_refused = asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield b"x" * 1000
        await is_refused.wait()

    async with (
        asyncio.timeout(TIMEOUT_S),
        browser.ask("POST", "/v1/audio/transcriptions", {}, data=half()) as answer,
    ):
        assert answer.status == 401
        is_refused.set()


def test_the_documented_nginx_configuration_works(tmp_path: Path) -> None:
    settings = {
        "EARSHOT_ALLOWED_HOSTS": NAME,
        "EARSHOT_ALLOWED_ORIGINS": "https://app.example",
        "EARSHOT_API_KEY": KEY,
    }

    async def act(port: int) -> None:
        async with aiohttp.ClientSession() as session:
            browser = Browser(session, port)
            await _is_let_in_by_the_key_alone(browser)
            await _converses_over_a_websocket(browser)
            await _gets_events_as_they_are_made(browser)
            await _uploads_while_it_is_made(browser)

    with (
        serving(tmp_path, settings=settings) as server,
        reserved_port() as port,
        nginx(tmp_path, port, documented(tmp_path, port, server.url)),
    ):
        asyncio.run(act(port))


def test_a_proxy_without_forwarding_headers_gives_no_access(tmp_path: Path) -> None:
    async def act(port: int) -> None:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            assert (await session.get("/")).status == 200
            assert (await session.get("/earshot/engines")).status == 401
            board = {"Device-Id": "a1:b2:c3:d4:e5:f6"}
            assert (await session.post("/xiaozhi/ota/", headers=board, data=b"{}")).status == 403

    with (
        serving(tmp_path) as server,
        reserved_port() as port,
        nginx(tmp_path, port, AS_IT_COMES.format(port=port, upstream=server.url)),
    ):
        asyncio.run(act(port))
