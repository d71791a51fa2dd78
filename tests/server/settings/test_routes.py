"""The settings over HTTP, on real sockets: who may change them, and what a change answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp import web as aioweb

from server.http.auth import AccessGate
from server.settings.language_models import LanguageModelFinder
from server.settings.routes import SettingsDoor, settings_routes
from tests.server.http.harness import KEY, error_of, serving
from tests.server.settings.harness import service

pytestmark = pytest.mark.live

FILE = """\
# ours
[llm]
engine = "openai"
options = { base_url = "http://127.0.0.1:9/v1", api_key = "sk-hush" }
"""
FROM_ELSEWHERE = AccessGate(is_local=False, key=KEY)
WITH_KEY = {"Authorization": f"Bearer {KEY}"}


@asynccontextmanager
async def settings(
    folder: Path, gate: AccessGate | None = None, finder: LanguageModelFinder | None = None
) -> AsyncIterator[ClientSession]:
    door = SettingsDoor(service(folder, FILE), finder or LanguageModelFinder(ports={}))
    async with serving(settings_routes(door), gate=gate) as client:
        yield client


@asynccontextmanager
async def model_server(*models: str) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
    """A server with OpenAI's chat completions. Yields its port and the requests it has got."""
    got: list[dict[str, Any]] = []

    async def listing(_: aioweb.Request) -> aioweb.Response:
        return aioweb.json_response({"data": [{"id": one, "owned_by": "x"} for one in models]})

    async def answer(request: aioweb.Request) -> aioweb.StreamResponse:
        got.append({"key": request.headers.get("Authorization"), **await request.json()})
        stream = aioweb.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for text in ("Hello ", "there."):
            chunk = {"choices": [{"index": 0, "delta": {"content": text}}]}
            await stream.write(b"data: %b\n\n" % json.dumps(chunk).encode())
        await stream.write(b"data: [DONE]\n\n")
        return stream

    app = aioweb.Application()
    app.router.add_get("/v1/models", listing)
    app.router.add_post("/v1/chat/completions", answer)
    runner = aioweb.AppRunner(app)
    await runner.setup()
    await aioweb.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1], got
    finally:
        await runner.cleanup()


def test_a_change_is_previewed_and_saved(tmp_path: Path) -> None:
    async def act() -> None:
        async with settings(tmp_path) as client:
            form = await (await client.get("/v1/settings")).json()
            changes = {"assistant.voice": "heart", "llm.options.model": "qwen"}
            shown = await (
                await client.post("/v1/settings/preview", json={"changes": changes})
            ).json()
            assert '+voice = "heart"' in shown["diff"]
            assert "sk-hush" not in json.dumps([form, shown])
            assert (tmp_path / "earshot.toml").read_text() == FILE
            sent = {"changes": changes, "etag": form["etag"]}
            answer = await client.post("/v1/settings", json=sent)
            assert answer.status == 200
            saved = await answer.json()
            assert saved["needs_restart"]
            assert saved["applies"] == {
                "assistant.voice": "new_sessions",
                "llm.options.model": "restart",
            }
            text = (tmp_path / "earshot.toml").read_text()
            assert text.startswith("# ours\n")
            assert 'api_key = "sk-hush"' in text
            again = await client.post("/v1/settings", json=sent)
            assert again.status == 409
            assert (await error_of(again))["code"] == "settings_changed"

    asyncio.run(act())


def test_a_wrong_value_is_refused_with_its_name(tmp_path: Path) -> None:
    async def act() -> None:
        async with settings(tmp_path) as client:
            etag = (await (await client.get("/v1/settings")).json())["etag"]
            body = {"changes": {"assistant.speed": 9}, "etag": etag}
            answer = await client.post("/v1/settings", json=body)
            assert answer.status == 400
            error = await error_of(answer)
            assert (error["code"], error["param"]) == ("invalid_settings", "assistant.speed")
            for raw, code in ((b"{", "invalid_json"), (b'{"changes":3}', "invalid_value")):
                answer = await client.post("/v1/settings", data=raw)
                assert (await error_of(answer))["code"] == code
        assert (tmp_path / "earshot.toml").read_text() == FILE

    asyncio.run(act())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/settings"),
        ("POST", "/v1/settings"),
        ("POST", "/v1/settings/preview"),
        ("POST", "/v1/settings/language-models/search"),
        ("POST", "/v1/settings/language-models/test"),
    ],
)
def test_a_network_address_needs_the_key(tmp_path: Path, method: str, path: str) -> None:
    async def act() -> None:
        async with settings(tmp_path, FROM_ELSEWHERE) as client:
            body = {"changes": {"assistant.speed": 1.2}, "etag": "none"}
            answer = await client.request(method, path, json=body)
            assert answer.status == 401
        async with settings(tmp_path) as client:  # a page of another site, on this machine
            origin = {"Origin": "https://elsewhere.example"}
            answer = await client.request(method, path, json=body, headers=origin)
            assert answer.status == 401
        assert (tmp_path / "earshot.toml").read_text() == FILE

    asyncio.run(act())


def test_the_holder_of_the_key_may_change_settings(tmp_path: Path) -> None:
    async def act() -> None:
        async with settings(tmp_path, FROM_ELSEWHERE) as client:
            etag = (await (await client.get("/v1/settings", headers=WITH_KEY)).json())["etag"]
            body = {"changes": {"assistant.speed": 1.2}, "etag": etag}
            answer = await client.post("/v1/settings", json=body, headers=WITH_KEY)
            assert answer.status == 200

    asyncio.run(act())


def test_language_models_of_this_machine_are_found(tmp_path: Path) -> None:
    async def act() -> None:
        async with model_server("qwen", "llama") as (port, _), model_server() as (own, _):
            finder = LanguageModelFinder({own}, {port: "Ollama", own: "itself", 9: "nobody"})
            async with settings(tmp_path, finder=finder) as client:
                answer = await client.post("/v1/settings/language-models/search")
                assert await answer.json() == {
                    "servers": [
                        {
                            "name": "Ollama",
                            "base_url": f"http://127.0.0.1:{port}/v1",
                            "models": ["qwen", "llama"],
                        }
                    ],
                    "tried": [f"http://127.0.0.1:{port}/v1", "http://127.0.0.1:9/v1"],
                }

    asyncio.run(act())


def test_a_language_model_answers_once(tmp_path: Path) -> None:
    async def act() -> None:
        async with model_server("qwen") as (port, got), settings(tmp_path) as client:
            body = {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "sk-typed"}
            answer = await client.post("/v1/settings/language-models/test", json=body)
            told = await answer.json()
            assert told["text"] == "Hello there."
            assert "qwen" in told["model"]
            # The saved key belongs to another address, and is not sent here.
            del body["api_key"]
            await client.post("/v1/settings/language-models/test", json=body)
            assert [one["key"] for one in got] == ["Bearer sk-typed", None]

    asyncio.run(act())


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1:9/v1", "language_model_failed"),
        ("file:///etc/passwd", "bad_language_model"),
        ("http://me:hush@127.0.0.1:9/v1", "bad_language_model"),
    ],
)
def test_a_test_that_fails_says_why(tmp_path: Path, url: str, code: str) -> None:
    async def act() -> None:
        async with settings(tmp_path) as client:
            answer = await client.post("/v1/settings/language-models/test", json={"base_url": url})
            assert answer.status == 400
            error = await error_of(answer)
            assert error["code"] == code
            assert "sk-hush" not in error["message"]

    asyncio.run(act())
