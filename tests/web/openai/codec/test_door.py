"""`/v1/audio/tokens` and `/v1/audio/detokenize` over HTTP. The codec keeps the loudness of each
frame, and runs in this process."""

import asyncio
import io
import json
import wave
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import FormData

from engines.base.codec import CodecInfo, CodecItem, CodecResult
from engines.codec.items import convert
from media.files.upload_spool import UploadSpools
from serving.codec.model import add_codecs
from serving.models.registry import ModelRegistry
from tests.devices.registry.harness import Moment
from tests.engines.codec.codec_folder import write_codec_folder
from tests.engines.codec.loudness_codec import FRAME_SAMPLES, LoudnessCodec
from tests.media.files.thread_decoder import ThreadDecoder
from tests.pipeline.fakes import Counts
from tests.web.client import Client, with_client
from web.openai.codec.door import CodecDoor, codec_routes
from web.openai.limits import RequestLimit, RequestLimits

pytestmark = pytest.mark.live

TOKENS, DETOKENIZE = "/v1/audio/tokens", "/v1/audio/detokenize"
RATE_HZ = 24_000


class InProcess:
    """Stands for the worker process of a loaded codec."""

    is_ready = True
    model = LoudnessCodec()

    def __init__(self, *_: object) -> None:
        """Takes what the worker takes."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def ready(self) -> CodecInfo:
        return self.model.info

    async def warm_up(self) -> None:
        """Needs none."""

    def resident_mb(self) -> float:
        return 0.0

    async def submit(self, item: CodecItem, _: object) -> CodecResult:
        return convert(self.model, [item])[0]


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.codec.model.CodecWorkerPool", InProcess)
    monkeypatch.setattr("serving.codec.model.BatchProcess", lambda *_, **__: None)


def _limits() -> RequestLimits:
    limit = RequestLimit("codec", "codec", 4, timeout_s=20)
    return RequestLimits(limit, limit, limit, limit, limit)


def play(models: Path, scene: Callable[[Client], Awaitable[None]]) -> None:
    registry = ModelRegistry({"cpu": 4000.0}, Moment(), Counts(), room_setting="asr.memory_mb")
    codecs = add_codecs(registry, str(models), Moment(), Counts())

    async def use(client: Client) -> None:
        async with registry.running():
            await scene(client)

    door = CodecDoor(codecs, UploadSpools(), ThreadDecoder(), _limits())
    with_client(codec_routes(door), use)


def _form(seconds: float, **fields: str) -> FormData:
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(np.full(round(seconds * RATE_HZ), 16384, "<i2").tobytes())
    form = FormData()
    for name, text in fields.items():
        form.add_field(name, text)
    form.add_field("file", data.getvalue(), filename="voice.wav")
    return form


def test_sound_becomes_codes_and_codes_become_sound(tmp_path: Path) -> None:
    write_codec_folder(tmp_path / "encodec_24khz")

    async def scene(client: Client) -> None:
        answer = await client.post(TOKENS, data=_form(0.1, codebooks="2"))
        made = await answer.json()
        assert made["shape"] == [1, 2, 8]
        assert (made["model"], made["frames_per_s"]) == ("encodec_24khz", 75)
        assert made["codes"] == [[[32] * 7 + [16]] * 2]
        body = {"model": made["model"], "codes": made["codes"]}
        answer = await client.post(DETOKENIZE, json=body)
        assert answer.content_type == "audio/wav"
        with wave.open(io.BytesIO(await answer.read())) as file:
            assert (file.getframerate(), file.getnframes()) == (RATE_HZ, 8 * FRAME_SAMPLES)
            sound = np.frombuffer(file.readframes(8 * FRAME_SAMPLES), "<i2")
        assert (sound[0], sound[-1]) == (16384, 8192)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"codebooks": "3"}, 400, "invalid_value"),
        ({"codebooks": "8"}, 400, "invalid_value"),  # this codec has four
        ({"codebooks": "two"}, 400, "invalid_value"),
        ({"model": "nobody"}, 404, "model_not_found"),
        ({"bandwidth": "6"}, 400, "unknown_parameter"),
    ],
)
def test_a_wrong_form_is_refused(
    tmp_path: Path, fields: dict[str, str], status: int, code: str
) -> None:
    write_codec_folder(tmp_path / "encodec_24khz")

    async def scene(client: Client) -> None:
        answer = await client.post(TOKENS, data=_form(0.1, **fields))
        assert (answer.status, await answer.text()) == (status, code)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "codes",
    [
        [],
        [[]],
        [[[1], [1, 2]]],
        [[[1]]],  # one codebook
        [[[], []]],
        [[[1], [1]], [[1], [1]]],
        [[[64], [0]]],
        [[[-1], [0]]],
        [[[1 << 70], [0]]],
        [[[0.5], [0]]],
        [[[0] * 9001] * 2],  # 120 s and a frame
    ],
)
def test_wrong_codes_are_refused(tmp_path: Path, codes: Any) -> None:
    write_codec_folder(tmp_path / "encodec_24khz")

    async def scene(client: Client) -> None:
        answer = await client.post(DETOKENIZE, json={"codes": codes})
        assert (answer.status, await answer.text()) == (400, "invalid_value")

    play(tmp_path, scene)


def test_what_is_no_sound_or_too_long_is_refused(tmp_path: Path) -> None:
    write_codec_folder(tmp_path / "encodec_24khz")

    async def scene(client: Client) -> None:
        form = FormData()
        form.add_field("file", json.dumps({"no": "sound"}), filename="voice.wav")
        answer = await client.post(TOKENS, data=form)
        assert (answer.status, await answer.text()) == (400, "unsupported_audio")
        answer = await client.post(TOKENS, data=_form(121))
        assert await answer.text() == "audio_too_long"

    play(tmp_path, scene)


def test_a_server_without_a_codec_says_so(tmp_path: Path) -> None:
    async def scene(client: Client) -> None:
        answer = await client.post(DETOKENIZE, json={"codes": [[[0], [0]]]})
        assert (answer.status, await answer.text()) == (404, "model_not_found")

    play(tmp_path, scene)
