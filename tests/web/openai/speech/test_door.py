"""`POST /v1/audio/speech`: formats, first bytes, wrong bodies, failures, lost clients."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import msgspec
import numpy as np
import pytest
from aiohttp import ClientPayloadError
from openapi_spec_validator import validate

from media.files.decode import decode_file
from pipeline.services import EngineSet
from pipeline.speech.file import SpeechFiles
from pipeline.speech.language.language_id import TextLanguageDetector
from server.config.sections.limits import LimitsConfig
from serving.remote.models import RemoteModels
from tests.pipeline.fakes import LoudVads
from tests.server.http.harness import error_of
from tests.web.openai.speech.harness import SPEECH, HeldTts, Server, against, until
from web.openai.routes import speech_routes
from web.openai.speech.door import SpeechDoor
from web.openapi import document

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        (None, "audio/mpeg"),
        ("mp3", "audio/mpeg"),
        ("opus", "audio/ogg"),
        ("aac", "audio/aac"),
        ("flac", "audio/flac"),
        ("wav", "audio/wav"),
    ],
)
def test_every_format_can_be_decoded(kind: str | None, content_type: str) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(response_format=kind)
        assert (response.status, response.content_type) == (200, content_type)
        assert response.headers["Transfer-Encoding"] == "chunked"
        found = decode_file(await response.read())
        assert 250 * 16 <= len(found) <= 400 * 16
        assert np.abs(found).max() > 5000

    against(scene)


def test_pcm_is_24_khz_without_a_header() -> None:
    async def scene(server: Server) -> None:
        response = await server.post(response_format="pcm")
        assert response.content_type == "audio/pcm"
        found = np.frombuffer(await response.read(), "<i2")
        assert len(found) == 300 * 24
        assert (found == 9000).all()

    against(scene)


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_the_response_begins_before_the_voice_has_finished(stream_format: str) -> None:
    tts = HeldTts()

    async def scene(server: Server) -> None:
        tts.goes_on.clear()
        response = await server.post(
            input="One whole sentence. And another one.",
            response_format="wav",
            stream_format=stream_format,
        )
        first = await response.content.readany()
        assert first
        assert [clause for clause, *_ in tts.asked] == ["One whole sentence."]
        tts.goes_on.set()
        await response.read()
        assert [clause for clause, *_ in tts.asked][1:] == ["And another one."]

    against(scene, tts)


def test_events_contain_the_file_and_its_usage() -> None:
    async def scene(server: Server) -> None:
        response = await server.post(stream_format="sse", response_format="pcm")
        assert response.content_type == "text/event-stream"
        events = (await response.text()).strip().split("\n\n")
        told = [json.loads(one.removeprefix("data: ")) for one in events]
        *deltas, done = told
        assert {one["type"] for one in deltas} == {"speech.audio.delta"}
        sound = b"".join(b64decode(one["audio"]) for one in deltas)
        assert len(sound) == 300 * 24 * 2
        assert done == {
            "type": "speech.audio.done",
            "usage": {"input_tokens": 2, "output_tokens": 6, "total_tokens": 8},
        }

    against(scene)


@pytest.mark.parametrize("stream_done", [True, False])
def test_events_end_with_done_only_if_requested(stream_done: bool) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(stream_format="sse", stream_done=stream_done)
        assert ("data: [DONE]" in await response.text()) == stream_done

    against(scene)


def test_models_are_listed() -> None:
    async def scene(server: Server) -> None:
        models = (await (await server.client.get("/v1/audio/models")).json())["models"]
        assert {"id": "default", "name": "default"} in models
        for model in models:
            assert (await server.post(model=model["id"])).status == 200, model

    against(scene)


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, ("Hello there.", "en", "low", 1.0)),
        ({"model": "gpt-4o-mini-tts", "voice": "verse"}, ("Hello there.", "en", "low", 1.0)),
        ({"model": "tone", "voice": "HIGH", "speed": 2}, ("Hello there.", "en", "high", 2.0)),
        ({"voice": {"id": "tief"}}, ("Hello there.", "de", "tief", 1.0)),
        ({"voice": "tone:high"}, ("Hello there.", "en", "high", 1.0)),
        ({"voice": "tone"}, ("Hello there.", "en", "low", 1.0)),
        ({"voice": "low+f3"}, ("Hello there.", "en", "low+f3", 1.0)),
        ({"input": "Das Licht ist an."}, ("Das Licht ist an.", "de", "tief", 1.0)),
        ({"voice": "low", "input": "Licht an."}, ("Licht an.", "en", "low", 1.0)),
        ({"language": "German"}, ("Hello there.", "de", "tief", 1.0)),
        ({"language": "de-AT", "voice": "low"}, ("Hello there.", "de", "tief", 1.0)),
        ({"instructions": "calmly", "unheard_of": [1]}, ("Hello there.", "en", "low", 1.0)),
        ({"speed": 0.25}, ("Hello there.", "en", "low", 0.25)),
    ],
)
def test_fields_reach_the_voice(fields: dict[str, Any], asked: tuple[object, ...]) -> None:
    tts = HeldTts()

    async def scene(server: Server) -> None:
        response = await server.post(**fields)
        assert response.status == 200, await response.text()
        await response.read()
        assert tts.asked == [asked]

    against(scene, tts)


@pytest.mark.parametrize(
    ("fields", "status", "code", "param", "says"),
    [
        ({"input": None}, 400, "missing_required_parameter", "input", "input"),
        ({"model": None}, 400, "missing_required_parameter", "model", "model"),
        ({"voice": None}, 400, "missing_required_parameter", "voice", "voice"),
        ({"voice": {}}, 400, "missing_required_parameter", "voice.id", "voice"),
        ({"input": ""}, 400, "empty_string", "input", "too short"),
        ({"input": " \n"}, 400, "empty_string", "input", "too short"),
        ({"input": "-"}, 400, "invalid_value", "input", "spoken"),
        (
            {"input": "x" * 4097},
            400,
            "string_above_max_length",
            "input",
            "maximum length 4096, but got a string with length 4097",
        ),
        ({"input": 5}, 400, "invalid_value", "input", "text"),
        ({"model": "parrot"}, 404, "model_not_found", "model", "default, tone"),
        ({"voice": "parrot"}, 400, "voice_not_found", "voice", "default, tone, low, high, tief"),
        ({"voice": 3}, 400, "invalid_value", "voice", "text or an object"),
        ({"speed": 0.2}, 400, "invalid_value", "speed", "0.25 to 4"),
        ({"speed": 4.1}, 400, "invalid_value", "speed", "0.25 to 4"),
        ({"speed": "1"}, 400, "invalid_value", "speed", "0.25 to 4"),
        ({"response_format": "mp4"}, 400, "invalid_value", "response_format", "aac, flac, mp3"),
        ({"stream_format": "ws"}, 400, "invalid_value", "stream_format", "audio, sse"),
        ({"instructions": [1]}, 400, "invalid_value", "instructions", "text"),
        ({"language": "xx"}, 400, "unsupported_language", "language", "de, en"),
    ],
)
def test_wrong_fields_are_named(
    fields: dict[str, Any], status: int, code: str, param: str, says: str
) -> None:
    tts = HeldTts()

    async def scene(server: Server) -> None:
        response = await server.post(**fields)
        error = await error_of(response)
        assert (response.status, error["code"], error["param"]) == (status, code, param), error
        assert says in error["message"]

    against(scene, tts)


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"{", "application/json", "invalid_json"),
        (b"\xff", "application/json", "invalid_json"),
        (b'{"x":' + b"[" * 80_000, "application/json", "invalid_json"),
        (b"[]", "application/json", "invalid_value"),
        (b"", "application/json", "invalid_json"),
        (b"model=tts-1", "application/x-www-form-urlencoded", "unsupported_media_type"),
    ],
)
def test_wrong_bodies_are_refused(body: bytes, content_type: str, code: str) -> None:
    async def scene(server: Server) -> None:
        headers = {"Content-Type": content_type}
        response = await server.client.post(SPEECH, data=body, headers=headers)
        assert (await error_of(response))["code"] == code
        assert response.status == (415 if code == "unsupported_media_type" else 400)

    against(scene)


def test_a_voice_that_fails_gives_an_error_first_and_a_cut_later() -> None:
    tts = HeldTts()

    async def scene(server: Server) -> None:
        tts.fails = True
        response = await server.post()
        assert (response.status, (await error_of(response))["code"]) == (502, "engine_failed")
        tts.fails, tts.breaks = False, True
        half = await server.post(response_format="wav")
        assert half.status == 200
        with pytest.raises(ClientPayloadError):
            await half.read()
        told = await (await server.post(response_format="wav", stream_format="sse")).text()
        assert '"code":"engine_failed"' in told

    against(scene, tts)


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_a_client_that_leaves_before_the_first_byte_stops_the_voice(stream_format: str) -> None:
    class NeverTts(HeldTts):
        """A voice that never yields its first audio."""

        async def speak(self, *args: Any, **kwargs: Any) -> Any:
            try:
                self.is_asked.set()
                await asyncio.Event().wait()
                yield
            finally:
                self.closed_early += 1

    tts = NeverTts()

    async def scene(server: Server) -> None:
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(server.post(stream_format=stream_format))
            await tts.is_asked.wait()
            assert server.reader.count == 1
            asking.cancel()
        await until(lambda: tts.closed_early == 1)

    against(scene, tts)


def test_a_client_that_leaves_midway_stops_the_voice(caplog: pytest.LogCaptureFixture) -> None:
    tts = HeldTts()
    tts.clause_ms = 600_000

    async def scene(server: Server) -> None:
        response = await server.post(response_format="pcm")
        await response.content.readany()
        response.close()
        await until(lambda: tts.closed_early == 1)

    against(scene, tts)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_request_beyond_the_limit_gets_retry_after() -> None:
    tts = HeldTts()

    async def scene(server: Server) -> None:
        tts.goes_on.clear()
        first = await server.post(response_format="wav")
        refused = await server.post()
        assert (refused.status, (await error_of(refused))["code"]) == (429, "too_many_requests")
        assert refused.headers["Retry-After"] == "1"
        tts.goes_on.set()
        await first.read()
        await until(lambda: server.reader.count == 0)
        assert (await server.post()).status == 200

    against(scene, tts, max_parallel=1)


def test_the_api_description_contains_it() -> None:
    tts = HeldTts()
    engines = EngineSet(LoudVads(), {}, {}, {"default": tts})
    routes = speech_routes(
        SpeechDoor(
            engines,
            SpeechFiles(engines),
            TextLanguageDetector(),
            LimitsConfig().as_limits().speech,
            RemoteModels(),
        )
    )
    made = document(routes, title="T", version="1", description="D")
    described = msgspec.json.decode(msgspec.json.encode(made))
    validate(described)
    operation = described["paths"][SPEECH]["post"]
    schema = described["components"]["schemas"]["SpeechFields"]
    assert schema["required"] == ["model", "input", "voice"]
    assert schema["properties"]["speed"]["maximum"] == 4
    assert "application/json" in operation["requestBody"]["content"]
    assert "audio/mpeg" in operation["responses"]["200"]["content"]
