"""`POST /asr` and `/detect-language` as clients of whisper-asr-webservice call them."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, FormData

from tests.server.http.harness import error_of
from tests.web.openai.transcriptions.harness import ONE, TWO, Server, against, recording, wav

pytestmark = pytest.mark.live

SPOKEN = recording(ONE, TWO)


async def ask(
    server: Server, path: str = "/asr", *, data: bytes | None = None, **query: str
) -> ClientResponse:
    form = FormData(default_to_multipart=True)
    form.add_field("audio_file", wav(SPOKEN) if data is None else data, filename="a.wav")
    return await server.client.post(path, params=query, data=form)


@pytest.mark.parametrize(
    ("query", "content_type", "body"),
    [
        ({}, "text/plain", "one two\n"),
        ({"output": "tsv"}, "text/tab-separated-values", "start\tend\ttext\n0\t1000\tone\n"),
        ({"output": "srt"}, "text/plain", "1\n00:00:00,000 --> 00:00:01,000\none\n"),
        ({"output": "VTT"}, "text/vtt", "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\none\n"),
    ],
)
def test_every_output_format_has_the_transcript(
    query: dict[str, Any], content_type: str, body: str, tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        response = await ask(server, **query)
        assert (response.status, response.content_type) == (200, content_type)
        assert response.headers["X-Earshot-Model"] == "listener"
        assert (await response.text()).startswith(body)

    against(tmp_path, scene)


def test_json_has_segments_and_words_if_requested(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        for word_timestamps in ("false", "true"):
            response = await ask(server, output="json", word_timestamps=word_timestamps)
            found: dict[str, Any] = await response.json()
            assert (found["text"], found["language"]) == ("one two", "de")
            assert [one["text"] for one in found["segments"]] == ["one", "two"]
            words = [one.get("words") for one in found["segments"]]
            assert (words[0] is not None) == (word_timestamps == "true")

    against(tmp_path, scene)


def test_raw_samples_and_options_of_bazarr_are_accepted(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        raw = SPOKEN.astype("<i2").tobytes()
        response = await ask(
            server,
            data=raw + b"\0",
            encode="false",
            task="translate",
            language="German",
            initial_prompt="Names: Ada",
            vad_filter="true",
            video_file="film.mkv",
            output="srt",
        )
        assert response.status == 200, await response.text()
        asked = server.listener.asked[-1]
        assert (asked.task, asked.language, asked.prompt) == ("translate", "de", "Names: Ada")

    against(tmp_path, scene)


@pytest.mark.parametrize("encode", ["true", "false"])
def test_the_language_is_detected_in_the_first_30_seconds(encode: str, tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        long = recording(*[ONE, TWO] * 20)
        data = wav(long) if encode == "true" else long.astype("<i2").tobytes()
        response = await ask(server, "/detect-language", data=data, encode=encode)
        assert await response.json() == {
            "detected_language": "german",
            "language_code": "de",
            "confidence": 0.8,
        }
        assert len(server.listener.asked) <= 8

    against(tmp_path, scene)


@pytest.mark.parametrize(
    ("query", "data", "param"),
    [
        ({"output": "pdf"}, None, "output"),
        ({"task": "sing"}, None, "task"),
        ({"language": "klingon"}, None, "language"),
        ({"diarize": "true"}, None, "diarize"),
        ({"encode": "false"}, b"", "audio_file"),
        ({}, b"no sound", "audio_file"),
    ],
)
def test_a_wrong_field_is_named(
    query: dict[str, Any], data: bytes | None, param: str, tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        response = await ask(server, data=data, **query)
        assert (response.status, (await error_of(response))["param"]) == (400, param)

    against(tmp_path, scene)
