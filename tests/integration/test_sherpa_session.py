"""A Realtime session with a streaming model of sherpa-onnx: a worker process, the real library, and
tones that are the words."""

import asyncio
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, FormData

from media.resample import Resampler
from server.compose.assemble import assemble
from server.config.load import load
from server.runtime.metrics import PrometheusMetrics
from tests.conftest import require
from tests.devices.willow.wis.uploads import wav
from tests.engines.asr.sherpa.tone_models import (
    have_sherpa,
    offline_tdt,
    punctuation,
    say,
    streaming_ctc,
)
from tests.server.http.harness import serving

pytestmark = pytest.mark.live

DEADLINE_S = 60
TEXT = "turn on the light"
FRAME = 480
"Samples of 20 ms at the rate of the Realtime API."


async def say_live(ws: ClientWebSocketResponse) -> None:
    """Sends the words and a pause as a microphone does, 20 ms at a time."""
    resampler = Resampler(16_000, 24_000)
    pcm = np.concatenate([resampler.push(say(TEXT, tail_ms=1200)), resampler.flush()])
    for start in range(0, len(pcm), FRAME):
        sound = b64encode(pcm[start : start + FRAME].astype("<i2").tobytes()).decode()
        await ws.send_json({"type": "input_audio_buffer.append", "audio": sound})
        await asyncio.sleep(0.02)


async def transcribe_live(http: ClientSession) -> tuple[list[str], str]:
    """Returns the partial transcripts while the words are said, and the final one."""
    partials: list[str] = []
    async with (
        http.ws_connect("/v1/realtime?intent=transcription") as ws,
        asyncio.TaskGroup() as tasks,
    ):
        session = {"type": "transcription", "include": ["earshot.hypothesis"]}
        await ws.send_json({"type": "session.update", "session": session})
        tasks.create_task(say_live(ws))
        while True:
            event = await ws.receive_json()
            assert event["type"] != "error", event
            if event["type"] == "earshot.hypothesis":
                partials.append(f"{event['stable']} {event['unstable']}".strip())
            if event["type"].endswith("input_audio_transcription.completed"):
                return partials, event["transcript"]


async def upload(http: ClientSession, model: str) -> str:
    data = FormData({"model": model}, default_to_multipart=True)
    data.add_field("file", wav(say("turn off the light", tail_ms=300)), filename="a.wav")
    response = await http.post("/v1/audio/transcriptions", data=data)
    return str((await response.json())["text"])


def test_words_appear_while_they_are_said_and_have_marks_at_the_end(tmp_path: Path) -> None:
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")
    streaming_ctc(tmp_path / "models" / "sherpa-onnx-tones")
    offline_tdt(tmp_path / "models" / "sherpa-onnx-whole-tones")
    punctuation(tmp_path / "models" / "marks")
    settings = {
        "EARSHOT_ASR__MODEL": "sherpa:tones",
        "EARSHOT_ASR__OPTIONS__PUNCTUATION": "marks",
        "EARSHOT_ASR__NO_SPEECH": "off",
        "EARSHOT_VAD__ENGINE": "tests.integration.tones",
        "EARSHOT_VAD__OPTIONS__KIND": "vad",
        "EARSHOT_PATHS__MODELS_DIR": str(tmp_path / "models"),
        "EARSHOT_PATHS__STATE_DIR": str(tmp_path / "state"),
    }

    async def scenario() -> None:
        async with (
            asyncio.timeout(DEADLINE_S),
            assemble(load(settings).config, PrometheusMetrics()) as parts,
            serving(parts.doors.routes) as http,
        ):
            partials, final = await transcribe_live(http)
            assert final == "turn on, the light."
            assert partials[0] in ("turn", "turn on")
            assert partials[-1] == TEXT
            whole = await upload(http, "sherpa-onnx-whole-tones")
            assert whole == "turn off the light"  # the options are those of the chosen model

    asyncio.run(scenario())
