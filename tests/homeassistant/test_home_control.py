"""A real Home Assistant as the smart home: commands by voice and text, a kill and a restart."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core.audio import Pcm
from tests.homeassistant.harness import signed_in, started, up
from tests.ports import reserved_port
from tests.server.process import Running, serving
from tests.speech import say

pytestmark = [pytest.mark.real, pytest.mark.alone]

LIGHT = "/api/states/light.kitchen_lights"
RATE_HZ = 24_000
ANSWER_S = 30


@dataclass
class Client:
    """One session of our server over the Realtime WebSocket."""

    ws: aiohttp.ClientWebSocketResponse
    heard: str = ""

    async def ask(self, text: str) -> str:
        item = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }
        await self.ws.send_json({"type": "conversation.item.create", "item": item})
        await self.ws.send_json({"type": "response.create"})
        return await self._answer()

    async def speak(self, pcm: Pcm) -> str:
        sound = base64.b64encode(pcm.tobytes()).decode()
        await self.ws.send_json({"type": "input_audio_buffer.append", "audio": sound})
        await self.ws.send_json({"type": "input_audio_buffer.commit"})
        await self.ws.send_json({"type": "response.create"})
        return await self._answer()

    async def _answer(self) -> str:
        said = ""
        while True:
            event = await self.ws.receive_json(timeout=ANSWER_S)
            match event["type"]:
                case "response.output_text.delta":
                    said += event["delta"]
                case "conversation.item.input_audio_transcription.completed":
                    self.heard = event["transcript"]
                case "error":
                    raise AssertionError(event)
                case "response.done":
                    return said


@asynccontextmanager
async def session(url: str) -> AsyncIterator[Client]:
    address = f"{url}/v1/realtime?model=default".replace("http", "ws", 1)
    async with aiohttp.ClientSession() as http, http.ws_connect(address) as ws:
        wanted: dict[str, Any] = {
            "type": "realtime",
            "output_modalities": ["text"],
            "audio": {
                "input": {
                    "turn_detection": None,
                    "transcription": {"model": "default", "language": "en"},
                }
            },
        }
        await ws.send_json({"type": "session.update", "session": wanted})
        yield Client(ws)


async def wait_for_log(server: Running, words: str) -> None:
    """Waits for a line of its log."""
    async with asyncio.timeout(90):
        while not any(words in line for line in server.said):  # noqa: ASYNC110 (a process)
            await asyncio.sleep(0.1)


async def prepared(url: str) -> str:
    """Prepares its entities and returns a token for our server."""
    async with signed_in(url) as home:
        await home.post("/api/services/light/turn_off", {"entity_id": "light.kitchen_lights"})
        return await home.long_lived_token()


async def state(url: str, token: str) -> str:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as http, http.get(url + LIGHT) as answer:
        return str((await answer.json())["state"])


async def switched(url: str, token: str, server: Running) -> None:
    """Switches by text and by voice: its own words come back, misheard names are corrected."""
    async with session(server.url) as client:
        assert await client.ask("turn on the kitchen lights") == "Turned on the light"
        assert await state(url, token) == "on"
        assert await client.ask("turn off the kitchen lice") == "Turned off the light"
        assert await state(url, token) == "off"
        answer = await client.speak(say("turn on the kitchen lights", rate_hz=RATE_HZ, tail_ms=300))
        assert await state(url, token) == "on", (client.heard, answer)
        assert answer == "Turned on the light"
        assert "15.6" in await client.ask("what is the outside temperature")


async def without_it(server: Running) -> None:
    async with session(server.url) as client:
        answer = await client.ask("turn off the kitchen lights")
        assert answer == "Home Assistant cannot be reached."
        assert await client.ask("set a timer for five minutes") == "Timer set for 5 minutes."
        assert "apples" in await client.ask("add apples to my shopping list")


async def again(url: str, token: str, server: Running) -> None:
    async with aiohttp.ClientSession() as http:
        await up(http, url)
    async with session(server.url) as client, asyncio.timeout(120):
        # It is connected again by itself, and its demo comes after its API.
        while "Turned off" not in await client.ask("turn off the kitchen lights"):  # noqa: ASYNC110
            await asyncio.sleep(1)
    assert await state(url, token) == "off"


def test_home_assistant_is_controlled_and_may_restart(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("home", "server")]
    for folder in folders:
        folder.mkdir()
    with reserved_port() as port, started(folders[0], port) as (url, process):
        token = asyncio.run(prepared(url))
        settings = {
            "EARSHOT_HOME_ASSISTANT__URL": url,
            "EARSHOT_HOME_ASSISTANT__TOKEN": token,
        }
        with serving(folders[1], settings=settings) as server:
            asyncio.run(wait_for_log(server, "entities in"))
            asyncio.run(switched(url, token, server))
            process.kill()
            process.wait()
            asyncio.run(wait_for_log(server, "! home assistant: "))
            asyncio.run(without_it(server))
            with started(folders[0], port):
                asyncio.run(again(url, token, server))
            assert not any(token in line for line in server.said)
            assert not any("Traceback" in line for line in server.said), "\n".join(server.said)
