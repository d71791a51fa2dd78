"""Clients of other systems, against scripted servers that speak their protocols."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from aiohttp import web as aioweb
from aiohttp.test_utils import TestServer

from bench.client.microphone import RATE_HZ
from bench.client.realtime import ConnectionLost
from bench.peers.clients import BareClient, WhisperLiveClient, WyomingClient
from bench.peers.systems import UtteranceResult
from bench.tools.utterance_audio import WAIT_MS, BenchUtterance, make_utterance
from core.audio import silence

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def speech() -> BenchUtterance:
    """Returns half a second of tone."""
    time = np.arange(RATE_HZ // 2) / RATE_HZ
    tone = (8000 * np.sin(2 * np.pi * 440 * time)).astype(np.int16)
    return make_utterance("beep", np.concatenate([tone, silence(100, RATE_HZ)]))


def served(handler: Handler, client: type[WyomingClient | BareClient]) -> UtteranceResult:
    async def run() -> UtteranceResult:
        async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
            return await client(server.sockets[0].getsockname()[1]).say(speech())

    return asyncio.run(run())


def test_the_wyoming_client_ends_its_audio_after_the_wait() -> None:
    events: list[dict[str, Any]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not events or events[-1]["type"] != "audio-stop":
            event = json.loads(await reader.readline())
            event["audio"] = await reader.readexactly(event.get("payload_length", 0))
            events.append(event)
        await asyncio.sleep(0.1)
        data = json.dumps({"text": " turn it on "}).encode()
        writer.write(b'{"type":"transcript","data_length":%d}\n' % len(data) + data)

    final = served(handle, WyomingClient)
    assert final.text == "turn it on"
    assert WAIT_MS + 95 <= final.took_ms < WAIT_MS + 1000
    assert [event["type"] for event in events[:2]] == ["transcribe", "audio-start"]
    assert events[0]["data"] == {"language": "en"}
    audio = b"".join(event["audio"] for event in events)
    assert len(audio) == pytest.approx(2 * 16 * (500 + WAIT_MS), abs=800)


def test_a_wyoming_server_that_closes_the_connection_gives_no_result() -> None:
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    with pytest.raises(ConnectionLost, match="Wyoming"):
        served(handle, WyomingClient)


def test_the_bare_client_sends_everything_after_the_wait() -> None:
    sizes: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sizes.append(int.from_bytes(await reader.readexactly(4), "big"))
        await reader.readexactly(sizes[0])
        writer.write(b'{"text":"turn it on"}\n')

    final = served(handle, BareClient)
    assert final.text == "turn it on"
    assert WAIT_MS <= final.took_ms < WAIT_MS + 900
    assert sizes[0] == pytest.approx(2 * 16 * (500 + WAIT_MS), abs=800)


def live(texts: list[tuple[float, str]]) -> UtteranceResult:
    """Runs a scripted WhisperLive that sends each text so many seconds after the first audio."""

    async def handle(request: aioweb.Request) -> aioweb.WebSocketResponse:
        ws = aioweb.WebSocketResponse()
        await ws.prepare(request)
        options = await ws.receive_json()
        assert (options["audio_format"], options["use_vad"]) == ("int16", False)
        await ws.send_json({"uid": options["uid"], "message": "SERVER_READY"})
        await ws.receive_bytes()
        began_at = asyncio.get_running_loop().time()
        for at, text in texts:
            await asyncio.sleep(began_at + at - asyncio.get_running_loop().time())
            await ws.send_json({"uid": options["uid"], "segments": [{"text": text}]})
        async for _ in ws:
            continue
        return ws

    async def run() -> UtteranceResult:
        app = aioweb.Application()
        app.router.add_get("/", handle)
        async with TestServer(app) as server:
            assert server.port is not None
            return await WhisperLiveClient(server.port).say(speech())

    return asyncio.run(run())


def test_the_first_text_of_all_speech_is_whisper_lives_final() -> None:
    final = live([(0.3, "turn"), (0.8, "turn it"), (1.5, "turn it on"), (1.6, "turn it on now")])
    assert final.text == "turn it on"
    assert 900 < final.took_ms < 1900


def test_a_whisper_live_final_during_the_wait_takes_as_long_as_the_wait() -> None:
    final = live([(0.6, "turn"), (0.75, "turn it on"), (0.9, "and on")])
    assert final.text == "turn it on"
    assert final.took_ms == pytest.approx(WAIT_MS)
