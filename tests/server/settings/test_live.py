"""A whole server: a saved setting holds for the next session, and at the next start."""

import asyncio
from pathlib import Path
from threading import Event
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.engines.llm.openai.completions_server import Server, delta, server_in_thread, sse, text
from tests.server.process import TIMEOUT_S, run, serving

pytestmark = pytest.mark.live


def test_the_next_session_has_the_saved_settings(tmp_path: Path) -> None:
    (tmp_path / "earshot.toml").write_text("# of the house\n")

    async def act(url: str) -> None:
        async with aiohttp.ClientSession(url) as client:

            async def speed() -> float:
                answer = await client.post("/v1/realtime/client_secrets", json={})
                session = (await answer.json())["session"]
                return float(session["audio"]["output"]["speed"])

            assert await speed() == 1.0
            form = await (await client.get("/v1/settings")).json()
            kinds = {one["key"]: one for one in form["fields"]}
            assert kinds["tts.engine"]["source"] == "EARSHOT_TTS__ENGINE"
            assert len(kinds["assistant.voice"]["choices"]) > 50
            body = {"changes": {"assistant.speed": 1.2}, "etag": form["etag"]}
            saved = await (await client.post("/v1/settings", json=body)).json()
            assert not saved["needs_restart"]
            assert await speed() == 1.2

    with serving(tmp_path) as server:
        asyncio.run(act(server.url))
    assert (tmp_path / "earshot.toml").read_text() == "# of the house\n\n[assistant]\nspeed = 1.2\n"
    assert "speed = 1.2" in run(tmp_path, "config").stdout


def test_the_server_starts_again_at_the_same_port_or_says_why_not(tmp_path: Path) -> None:
    file = tmp_path / "earshot.toml"
    file.write_text("")

    async def restart(client: aiohttp.ClientSession) -> tuple[int, str]:
        answer = await client.post("/v1/server/restart")
        body = await answer.json()
        return answer.status, body["error"]["message"] if "error" in body else ""

    async def act(url: str) -> None:
        async with aiohttp.ClientSession(url) as client:
            file.write_text('[llm]\nengine = "nobody"\n')
            status, why = await restart(client)
            assert status == 409
            assert "nobody" in why
            file.write_text("[turn]\nsilence = 3\n")
            status, why = await restart(client)
            assert (status, "unknown key 'silence'" in why) == (409, True)
            assert (await client.get("/health")).status == 200
            file.write_text('language = "de"\n')
            assert await restart(client) == (202, "")

    with serving(tmp_path) as server:
        asyncio.run(act(server.url))
        server.ready_again()
        form = asyncio.run(_form(server.url))
        language = next(one for one in form["fields"] if one["key"] == "language")
        assert (language["value"], language.get("is_pending", False)) == ("de", False)
        assert any("the owner asked for a restart: draining" in line for line in server.said)
        assert server.stop() == 0


def test_a_restart_lets_the_answer_in_progress_end(tmp_path: Path) -> None:
    may_end = Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse(delta(content="It begins. "), done=False))
        if "a story" in await request.text():  # the server's start asks, too
            await asyncio.to_thread(may_end.wait, TIMEOUT_S)
        await response.write(sse(*text("It ends.")))
        return response

    async def act(url: str) -> None:
        async with aiohttp.ClientSession(url) as client, client.ws_connect("/v1/realtime") as ws:

            async def read_until(kind: str) -> dict[str, Any]:
                while (event := await ws.receive_json(timeout=TIMEOUT_S))["type"] != kind:
                    assert event["type"] != "error", event
                found: dict[str, Any] = event
                return found

            content = [{"type": "input_text", "text": "tell me a story"}]
            item = {"type": "message", "role": "user", "content": content}
            await ws.send_json({"type": "conversation.item.create", "item": item})
            await ws.send_json({"type": "response.create"})
            await read_until("response.output_audio.delta")
            assert (await client.post("/v1/server/restart")).status == 202
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await client.ws_connect("/v1/realtime")
            assert refusal.value.status == 503
            may_end.set()
            done = (await read_until("response.done"))["response"]
            assert done["status"] == "completed"
            assert done["output"][0]["content"][0]["transcript"] == "It begins. It ends."
            while (message := await ws.receive(TIMEOUT_S)).type is aiohttp.WSMsgType.TEXT:
                pass
            assert message.type is aiohttp.WSMsgType.CLOSE

    with server_in_thread(Server(slow)) as model:
        settings = {
            "EARSHOT_LLM__ENGINE": "openai",
            "EARSHOT_LLM__OPTIONS__BASE_URL": model.url,
            "EARSHOT_LLM__OPTIONS__CONTEXT_TOKENS": "32768",
            "EARSHOT_SERVER__DRAIN_TIMEOUT_S": "90",
        }
        with serving(tmp_path, settings=settings) as server:
            asyncio.run(act(server.url))
            server.ready_again()
            assert asyncio.run(_form(server.url))["fields"]
            assert server.stop() == 0


async def _form(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession(url) as client:
        form: dict[str, Any] = await (await client.get("/v1/settings")).json()
        return form
