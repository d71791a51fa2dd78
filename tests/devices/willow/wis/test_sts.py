"""`POST /api/sts`: a recording in, speech out."""

from collections.abc import Mapping

import numpy as np
import pytest

from media.files.decode import decode_file
from tests.devices.willow.wis.servers import PickyTts, Scene, Server, TranslatingAsr, against
from tests.devices.willow.wis.uploads import form, wav
from tests.server.http.harness import error_of

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ({}, ("one two", "en", "low", 1.0)),
        ({"force_language": "de"}, ("one two", "de", "tief", 1.0)),
        ({"detect_language": "true"}, ("one two", "de", "tief", 1.0)),
        ({"translate": "true"}, ("in English: one two", "en", "low", 1.0)),
        ({"speaker": "HIGH", "speed": "1.5"}, ("one two", "en", "high", 1.5)),
        ({"answer": "true"}, ("you said one two.", "en", "low", 1.0)),
        ({"answer": "true", "translate": "true"}, ("you said in English:", "en", "low", 1.0)),
    ],
)
def test_speech_is_repeated_as_requested(
    query: Mapping[str, str], asked: tuple[object, ...]
) -> None:
    tts = PickyTts()

    async def act(server: Server) -> None:
        response = await server.client.post("/api/sts", params=query, data=form(wav()))
        assert response.status == 200, await response.text()
        assert response.content_type == "audio/flac"
        assert np.abs(decode_file(await response.read())).max() > 5000
        assert tts.asked[0] == asked

    against(act, Scene(tts=tts))


def test_an_answer_belongs_to_its_conversation() -> None:
    async def act(server: Server) -> None:
        query = {"answer": "true", "conversation_id": "hall", "format": "WAV"}
        for _ in range(2):
            response = await server.client.post("/api/sts", params=query, data=form(wav()))
            assert response.content_type == "audio/wav"
            await response.read()
        assert [len(messages) for messages in server.scene.llm.asked] == [1, 3]

    against(act)


@pytest.mark.parametrize(
    ("query", "param", "says"),
    [
        ({"format": "PCM"}, "format", "WAV, FLAC"),
        ({"speed": "x"}, "speed", "0.25 to 4"),
        ({"answer": "maybe"}, "answer", "true or false"),
        ({"temperature": "9"}, "temperature", "0 to 2"),
        ({"force_language": "xx"}, "force_language", "en, de"),
        ({"beam_size": "99"}, "beam_size", "1 to"),
        ({"model": "parrot"}, "model", "tiny"),
    ],
)
def test_wrong_parameters_are_refused_before_recognition(
    query: Mapping[str, str], param: str, says: str
) -> None:
    async def act(server: Server) -> None:
        response = await server.client.post("/api/sts", params=query, data=form(wav()))
        error = await error_of(response)
        assert (response.status, error["param"]) == (400, param)
        assert says in error["message"]
        assert server.scene.asr.asked == []

    against(act)


def test_silence_and_wrong_files_are_refused() -> None:
    async def act(server: Server) -> None:
        silence = form(wav(np.zeros(16_000, np.int16)))
        response = await server.client.post("/api/sts", data=silence)
        assert (response.status, (await error_of(response))["code"]) == (400, "no_speech")
        response = await server.client.post("/api/sts", data=form(b"text"))
        assert (await error_of(response))["code"] == "unsupported_audio"
        response = await server.client.post("/api/sts", data=b"RIFF")
        assert (await error_of(response))["code"] == "unsupported_media_type"
        assert server.scene.llm.asked == []

    against(act)


def test_a_model_without_translation_is_named() -> None:
    async def act(server: Server) -> None:
        response = await server.client.post("/api/sts?translate=true", data=form(wav()))
        assert (await error_of(response))["code"] == "unsupported_parameter"

    against(act, Scene(asr=TranslatingAsr(translates=False)))
