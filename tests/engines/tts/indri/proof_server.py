"""`earshot serve` with this engine: its worker, and the doors through which every voice speaks."""

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import psutil
import pytest
from openai import AsyncOpenAI

from tests.engines.tts.indri.checkpoint import SPEAKERS, write_checkpoints
from tests.server.process import Running, serving, workers

pytestmark = pytest.mark.live

PATIENCE_S = 60
FRAME_BYTES = 2 * 1920
MAX_IDS = 84
PUBLISHED = ("spkr_63", "spkr_53")
"The published voices of the checkpoint, the default first."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("indri")
    folders = write_checkpoints(folder)
    settings = {
        "EARSHOT_TTS__ENGINE": "indri",
        "EARSHOT_TTS__OPTIONS__PATH": folders["path"],
        "EARSHOT_TTS__OPTIONS__CODEC": folders["codec"],
        "EARSHOT_TTS__OPTIONS__MAX_IDS": str(MAX_IDS),
        "EARSHOT_TTS__OPTIONS__SLOTS": "2",
    }
    with serving(folder, settings=settings) as running:
        yield running
        assert running.stop() == 0
    assert not [line for line in running.said if "Traceback" in line]


def client(server: Running) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(server.url, timeout=aiohttp.ClientTimeout(PATIENCE_S))


async def speech(http: aiohttp.ClientSession, text: str, voice: str) -> bytes:
    body = {"model": "tts-1", "input": text, "voice": voice, "response_format": "pcm"}
    async with http.post("/v1/audio/speech", json=body) as response:
        assert response.status == 200, await response.text()
        return await response.read()


def test_rest_lists_and_speaks_the_voices(server: Running) -> None:
    async def scene() -> None:
        async with client(server) as http:
            for language in ("en", "hi"):
                query = {"engine": "indri", "language": language}
                async with http.get("/v1/audio/voices", params=query) as response:
                    listed = (await response.json())["voices"]
                assert [voice["id"] for voice in listed] == [f"indri/{name}" for name in PUBLISHED]
                assert [voice["gender"] for voice in listed] == ["male", "female"]
                async with http.get(listed[0]["sample"]) as response:
                    assert (await response.read())[:4] == b"RIFF"
            one, again, other = await asyncio.gather(
                speech(http, "The kettle is on.", "indri/spkr_63"),
                speech(http, "The kettle is on.", "indri/spkr_63"),
                speech(http, "The kettle is on.", "indri/spkr_53"),
            )
            assert len(one) == len(again) == MAX_IDS // 8 * FRAME_BYTES
            assert other != one

    asyncio.run(scene())


@pytest.mark.parametrize("voice", ["indri/spkr_99", "indri/spkr_unk", "indri/spkr_1"])
def test_a_voice_that_is_not_offered_is_refused_by_name(server: Running, voice: str) -> None:
    async def scene() -> None:
        body = {"model": "tts-1", "input": "hello", "voice": voice}
        async with client(server) as http, http.post("/v1/audio/speech", json=body) as response:
            assert response.status == 400
            error = (await response.json())["error"]
        assert error["code"] == "voice_not_found"
        assert voice.partition("/")[2] in error["message"]

    assert SPEAKERS[-1] == "spkr_99"  # the checkpoint has it, but it is none of the published
    asyncio.run(scene())


def test_a_realtime_answer_is_spoken_by_the_voice_of_the_session(server: Running) -> None:
    async def scene() -> int:
        http, sound = f"{server.url}/v1", 0
        async with (
            AsyncOpenAI(
                api_key="key", base_url=http, websocket_base_url=http.replace("http", "ws", 1)
            ) as stock,
            stock.realtime.connect(model="gpt-realtime") as connection,
            asyncio.timeout(PATIENCE_S),
        ):
            audio: Any = {"output": {"voice": "indri/spkr_53"}}
            await connection.session.update(session={"type": "realtime", "audio": audio})
            content: Any = [{"type": "input_text", "text": "what time is it"}]
            await connection.conversation.item.create(
                item={"type": "message", "role": "user", "content": content}
            )
            await connection.response.create()
            async for event in connection:
                assert event.type != "error", event
                if event.type == "session.updated":
                    assert event.session.audio.output.voice == "indri/spkr_53"  # type: ignore[union-attr]
                elif event.type == "response.output_audio.delta":
                    sound += len(event.delta)
                elif event.type == "response.done":
                    break
        return sound

    assert asyncio.run(scene()) > 0


def test_clients_that_leave_and_a_dead_worker_do_no_harm(server: Running) -> None:
    async def scene() -> None:
        async with client(server) as http:
            body = {"model": "tts-1", "input": "A sentence. " * 20, "voice": "indri"}
            for _ in range(5):  # more than there are slots
                async with http.post("/v1/audio/speech", json=body) as response:
                    assert len(await response.content.readany())
            assert len(await speech(http, "The door is open.", "indri")) > FRAME_BYTES
            before = workers(server)  # the recogniser's, and the voice's
            for worker in before:
                worker.kill()
            psutil.wait_procs(before, timeout=PATIENCE_S)
            assert len(await speech(http, "The window is open.", "indri")) > FRAME_BYTES

    asyncio.run(scene())
