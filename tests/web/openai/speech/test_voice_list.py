"""The list of voices, and their samples."""

import asyncio
import io
import wave
from typing import Any

import pytest

from pipeline.services import EngineSet
from pipeline.speech.file import SpeechFileOptions, SpeechFiles
from tests.pipeline.fakes import LoudVads
from tests.server.http.harness import error_of
from tests.web.openai.speech.harness import HeldTts, Server, against, door
from web.openai.speech.samples import VoiceSamples, sample_text
from web.openai.speech.voice_cards import sample_path

pytestmark = pytest.mark.live

VOICES = "/v1/audio/voices"


async def listed(server: Server, **query: str) -> list[dict[str, Any]]:
    answer = await server.client.get(VOICES, params=query)
    assert answer.status == 200, await answer.text()
    voices: list[dict[str, Any]] = (await answer.json())["voices"]
    return voices


def test_each_voice_of_each_engine_is_listed_spoken_and_heard() -> None:
    tts, spare = HeldTts(), HeldTts()

    async def scene() -> None:
        async with door(tts, 4, spare=spare) as server:
            voices = await listed(server)
            assert [voice["id"] for voice in voices] == [
                "default",
                *("tone/low", "tone/high", "spare/low", "spare/high"),
                *("tone/tief", "spare/tief"),
            ]
            assert voices[4] == {
                "id": "spare/high",
                "name": "high",
                "language": "en",
                "languages": ["en"],
                "gender": "female",
                "engine": "spare",
                "sample": "/v1/audio/voices/spare/high/sample",
            }
            assert (voices[0]["engine"], voices[0]["gender"]) == ("tone", "male")
            assert voices[0]["languages"] == ["de", "en"]
            assert voices[-1]["gender"] is None
            for voice in voices:
                said = await server.post(voice=voice["id"], response_format="pcm")
                assert said.status == 200, voice
                engine = spare if voice["engine"] == "spare" else tts
                before = len(engine.asked)
                heard = await server.client.get(voice["sample"])
                assert (heard.status, heard.content_type) == (200, "audio/wav"), voice
                own = "low" if voice["id"] == "default" else voice["name"]
                text = sample_text(voice["language"])
                assert {(one[1], one[2]) for one in engine.asked[before:]} <= {
                    (voice["language"], own)
                }
                assert "".join(one[0] for one in engine.asked[before:]) in ("", text)

    asyncio.run(scene())


def test_voices_are_filtered_by_language_and_engine() -> None:
    async def scene() -> None:
        async with door(HeldTts(), 4, spare=HeldTts()) as server:
            german = [voice["id"] for voice in await listed(server, language="German")]
            assert german == ["tone/tief", "spare/tief"]
            both = await listed(server, language="de", engine="spare")
            assert [voice["id"] for voice in both] == ["spare/tief"]

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("path", "code", "param", "allowed"),
    [
        (f"{VOICES}?language=xx", "unsupported_language", "language", "de, en"),
        (f"{VOICES}?engine=parrot", "invalid_value", "engine", "tone"),
        (f"{VOICES}/parrot/sample", "voice_not_found", "voice", "low, high, tief"),
        (f"{VOICES}/tone/tief/sample?language=en", "unsupported_language", "language", "de"),
        (f"{VOICES}/tone/low/sample?speed=9", "invalid_value", "speed", "0.25 to 4"),
        (f"{VOICES}/tone/low/sample?speed=x", "invalid_value", "speed", "0.25 to 4"),
    ],
)
def test_wrong_queries_are_refused(path: str, code: str, param: str, allowed: str) -> None:
    async def scene(server: Server) -> None:
        answer = await server.client.get(path)
        error = await error_of(answer)
        assert (answer.status, error["code"], error["param"]) == (400, code, param)
        assert allowed in error["message"]

    against(scene)


@pytest.mark.parametrize("name", ["tone/high", "tone%2Fhigh", "tone:high", "high"])
def test_a_sample_is_made_once(name: str) -> None:
    tts = HeldTts()

    async def scene(server: Server) -> None:
        first, second = [
            await (await server.client.get(f"{VOICES}/{name}/sample?speed=1.5")).read()
            for _ in range(2)
        ]
        assert first == second
        assert tts.asked == [(sample_text("en"), "en", "high", 1.5)]
        with wave.open(io.BytesIO(first)) as file:
            assert (file.getframerate(), file.getnchannels()) == (24_000, 1)
            assert 2 * file.getnframes() == len(first) - 44

    against(scene, tts)


def test_kept_samples_have_a_limit() -> None:
    async def scene() -> None:
        engines = EngineSet(LoudVads(), {}, {}, {"default": HeldTts()})
        samples = VoiceSamples(SpeechFiles(engines), max_bytes=20_000)
        low, high = (SpeechFileOptions("en", voice) for voice in ("low", "high"))
        sound = await samples.make(low)
        assert samples.kept(low) == sound
        assert len(sound) == samples.size_bytes < 20_000
        await samples.make(high)
        assert samples.kept(low) is None
        assert samples.kept(high) is not None
        assert samples.size_bytes < 20_000

    asyncio.run(scene())


@pytest.mark.parametrize("language", ["en", "de", "zh", "sw"])
def test_every_language_has_a_text(language: str) -> None:
    assert sample_text(language).strip()


@pytest.mark.parametrize(
    ("voice", "path"),
    [
        ("espeak/en-gb+f3", "/v1/audio/voices/espeak/en-gb+f3/sample"),
        ("piper/en_GB-vctk-medium/p225", "/v1/audio/voices/piper/en_GB-vctk-medium/p225/sample"),
        ("x/a b?", "/v1/audio/voices/x/a%20b%3F/sample"),
    ],
)
def test_the_path_of_a_sample_is_a_valid_url(voice: str, path: str) -> None:
    assert sample_path(voice) == path
