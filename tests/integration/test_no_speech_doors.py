"""The setting `asr.no_speech` at every API of one server: what becomes of a short word of which the
recogniser is sure, and of a sound that its scores call noise."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientSession, FormData
from wyoming.asr import Transcribe
from wyoming.audio import AudioChunk, AudioStart, AudioStop

from core.audio import Pcm
from pipeline.transcription.no_speech import NoSpeechMode
from server.compose.assemble import assemble
from server.config.load import load
from server.net.listeners import bind
from server.runtime.metrics import PrometheusMetrics
from tests.devices.willow.wis.rtc.webrtc_client import calling
from tests.devices.willow.wis.uploads import wav
from tests.devices.wyoming.servers import client, send, until
from tests.devices.xiaozhi.simulated_board import Board, speech
from tests.integration.tones import CLEAR, NOISE, SHORT, tone
from tests.raw_peer import RATE_HZ, RawPeer
from tests.server.http.harness import serving
from tests.signaling.realtime.webrtc_client import CALLS, form
from tests.signaling.whip.client import publishing

pytestmark = pytest.mark.live

DEADLINE_S = 60
SHORT_MS = 120
"Enough to begin an utterance, too little for the VAD's rules."
CLEAR_MS = 420
TONES = "tests.integration.tones"

Door = Callable[["House", str], Awaitable[str]]


class House:
    """A server with all its APIs."""

    def __init__(self, http: ClientSession, wyoming_port: int) -> None:
        self.http, self.wyoming_port = http, wyoming_port


@asynccontextmanager
async def house(mode: NoSpeechMode, folder: Path) -> AsyncIterator[House]:
    settings = {
        "EARSHOT_ASR__NO_SPEECH": mode,
        "EARSHOT_ASR__ENGINE": TONES,
        "EARSHOT_ASR__OPTIONS__KIND": "asr",
        "EARSHOT_VAD__ENGINE": TONES,
        "EARSHOT_VAD__OPTIONS__KIND": "vad",
        "EARSHOT_PATHS__STATE_DIR": str(folder),
    }
    sockets = bind("127.0.0.1", 0)
    async with (
        assemble(load(settings).config, PrometheusMetrics()) as parts,
        serving((*parts.doors.routes, *parts.doors.willow_routes)) as http,
        asyncio.TaskGroup() as tasks,
    ):
        wyoming = tasks.create_task(parts.doors.wyoming.run(sockets))
        yield House(http, sockets[0].getsockname()[1])
        wyoming.cancel()


def alone(word: str, rate_hz: int = 16_000) -> Pcm:
    """Returns the short sound between silences."""
    silence = np.zeros(rate_hz // 2, np.int16)
    return np.concatenate([silence, tone(word, SHORT_MS, rate_hz), silence])


def before_a_clear_word(word: str, rate_hz: int) -> Pcm:
    """Returns the short sound and then a clear word.

    If the short sound was dropped, the clear word is the first transcript of a stream.
    """
    silence = np.zeros(rate_hz * 12 // 10, np.int16)
    sounds = alone(word, rate_hz), silence, tone(CLEAR, CLEAR_MS, rate_hz), silence
    return np.concatenate(sounds)


def first_word(transcript: str) -> str:
    return "" if transcript == CLEAR else transcript


async def realtime_websocket(at: House, word: str) -> str:
    async with at.http.ws_connect("/v1/realtime?intent=transcription") as ws:
        sound = before_a_clear_word(word, 24_000).astype("<i2").tobytes()
        append = {"type": "input_audio_buffer.append", "audio": b64encode(sound).decode()}
        await ws.send_json(append)
        while not is_completed(event := await ws.receive_json()):
            pass
    return first_word(event["transcript"])


async def realtime_call(at: House, word: str) -> str:
    peer = RawPeer(before_a_clear_word(word, RATE_HZ), "sendonly")
    peer.channel("oai-events")
    try:
        offer = form(await peer.offer(), {"type": "transcription"})
        response = await at.http.post(CALLS, data=offer)
        await peer.accept(await response.text())
        while not is_completed(event := json.loads(await peer.texts.get())):
            pass
    finally:
        await peer.close()
    return first_word(event["transcript"])


def is_completed(event: dict[str, Any]) -> bool:
    assert event["type"] != "error", event
    kind: str = event["type"]
    return kind.endswith("input_audio_transcription.completed") and event["transcript"] != ""


async def whip(at: House, word: str) -> str:
    sound = before_a_clear_word(word, RATE_HZ)
    async with publishing(at.http, sound, channel="events") as publisher:
        while not (event := json.loads(await publisher.raw.texts.get())).get("transcript"):
            pass
        await publisher.end()
    return first_word(event["transcript"])


async def transcription_upload(at: House, word: str) -> str:
    data = FormData({"model": "default"}, default_to_multipart=True)
    data.add_field("file", wav(alone(word)), filename="a.wav")
    response = await at.http.post("/v1/audio/transcriptions", data=data)
    return str((await response.json())["text"])


async def whisper_service_upload(at: House, word: str) -> str:
    data = FormData(default_to_multipart=True)
    data.add_field("audio_file", wav(alone(word)), filename="a.wav")
    response = await at.http.post("/asr", data=data)
    return (await response.text()).strip()


async def willow_upload(at: House, word: str) -> str:
    response = await at.http.post("/api/willow", data=alone(word).tobytes())
    return str((await response.json())["text"])


async def willow_call(at: House, word: str) -> str:
    async with calling(at.http) as caller:
        caller.send("start")
        assert (await caller.messages.get())["message"] == "recording started"
        await caller.say(alone(word, 48_000))
        caller.send("stop")
        return str((await caller.expect("infer"))["obj"]["text"])


async def wyoming(at: House, word: str) -> str:
    form_ = {"rate": 16_000, "width": 2, "channels": 1}
    async with client(at.wyoming_port) as one:
        sound = AudioChunk(audio=alone(word).tobytes(), **form_)
        await send(one, Transcribe(), AudioStart(**form_), sound, AudioStop())
        return str((await until(one, "transcript"))[-1].data["text"])


async def xiaozhi(at: House, word: str) -> str:
    board = Board(at.http, mac=f"a1:b2:c3:d4:e5:{word.encode()[:1].hex()}", client_id=f"c-{word}")
    await board.boot()
    await board.open()
    pause = [b""] * 20  # a board's packets are 60 ms; an empty one is silence
    board.say_packets([*speech(word, word_ms=SHORT_MS), *pause, *speech(CLEAR)])
    heard = await board.text("stt")
    await board.hang_up()
    return first_word(heard["text"])


DOORS: dict[str, Door] = {
    "Realtime WebSocket": realtime_websocket,
    "Realtime call": realtime_call,
    "WHIP": whip,
    "transcription upload": transcription_upload,
    "whisper-asr-webservice upload": whisper_service_upload,
    "Willow upload": willow_upload,
    "Willow call": willow_call,
    "Wyoming": wyoming,
    "xiaozhi": xiaozhi,
}


@pytest.mark.parametrize(
    ("mode", "short", "noise"),
    [("off", SHORT, NOISE), ("normal", SHORT, ""), ("strict", "", "")],
)
def test_every_api_treats_noise_as_configured(
    mode: NoSpeechMode, short: str, noise: str, tmp_path: Path
) -> None:
    heard: dict[str, tuple[str, ...]] = {}

    async def knock(at: House, name: str) -> None:
        words = await asyncio.gather(*[DOORS[name](at, word) for word in (SHORT, NOISE)])
        heard[name] = tuple(words)

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), house(mode, tmp_path) as at:
            await asyncio.gather(*[knock(at, name) for name in DOORS])

    asyncio.run(main())
    assert heard == dict.fromkeys(DOORS, (short, noise))
