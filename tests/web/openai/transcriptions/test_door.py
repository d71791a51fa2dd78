"""The transcription API over a real socket: every format, and the effect of each field."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import EngineError, OverloadedError
from engines.base import AsrOptions
from tests.server.http.harness import error_of
from tests.web.openai.transcriptions.harness import (
    ONE,
    THREE,
    TRANSLATIONS,
    TWO,
    Server,
    against,
    recording,
    wav,
)

pytestmark = pytest.mark.live

SPOKEN = wav(recording(ONE, TWO))
"Two words, a second each."

LONG = wav(recording(ONE, 0, 0, 0, 0, TWO, 0, 0, 0, 0, THREE))
"Three windows of the recogniser."


def test_json_has_text_and_usage(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        assert await server.json(SPOKEN) == {
            "text": "one two",
            "languages": [{"code": "de"}],
            "usage": {"type": "duration", "seconds": 2},
        }
        assert await server.json(SPOKEN, language="en") == {
            "text": "one two",
            "usage": {"type": "duration", "seconds": 2},
        }

    against(tmp_path, scene)


def test_logprobs_are_listed_per_token(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        answer = await server.json(SPOKEN, include__="logprobs")
        assert answer["logprobs"] == [
            {"token": "one", "logprob": -0.5, "bytes": [111, 110, 101]},
            {"token": "two", "logprob": -0.5, "bytes": [116, 119, 111]},
        ]

    against(tmp_path, scene)


@pytest.mark.parametrize(
    ("response_format", "content_type", "body"),
    [
        ("text", "text/plain; charset=utf-8", "one two\n"),
        (
            "srt",
            "text/plain; charset=utf-8",
            "1\n00:00:00,000 --> 00:00:01,000\none\n\n2\n00:00:01,000 --> 00:00:02,000\ntwo\n\n",
        ),
        (
            "vtt",
            "text/vtt; charset=utf-8",
            (
                "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\none\n\n"
                "00:00:01.000 --> 00:00:02.000\ntwo\n\n"
            ),
        ),
    ],
)
def test_text_and_subtitle_formats(
    response_format: str, content_type: str, body: str, tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(file=SPOKEN, response_format=response_format)
        assert response.status == 200
        assert response.headers["Content-Type"] == content_type
        assert await response.text() == body

    against(tmp_path, scene)


def test_plain_json_may_have_segments(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        answer = await server.json(SPOKEN, timestamp_granularities__="segment")
        assert (answer["text"], "segments" in answer) == ("one two", False)

    against(tmp_path, scene)


def test_response_headers_name_the_model_and_the_padding(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        listener = server.listener
        able = (*listener.info.supports, "padding")
        listener.info = replace(listener.info, supports=able, paddings=("max", "longest"))
        for asked, done in (("nopad", "longest"), ("max", None)):
            response = await server.post(file=SPOKEN, padding=asked)
            assert response.headers["X-Earshot-Model"] == "listener"
            assert response.headers.get("X-Earshot-Padding") == done
            assert (await response.json()).get("padding") == done
            streamed = await server.post(file=SPOKEN, padding=asked, stream="true")
            assert ('"padding":"longest"' in await streamed.text()) == (done is not None)

    against(tmp_path, scene)


@pytest.mark.parametrize(
    ("granularities", "keys"),
    [
        ((), {"segments"}),
        (("segment",), {"segments"}),
        (("word",), {"words"}),
        (("word", "segment"), {"segments", "words"}),
    ],
)
def test_verbose_json_has_segments_and_words(
    granularities: tuple[str, ...], keys: set[str], tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        answer = await server.json(
            SPOKEN, response_format="verbose_json", timestamp_granularities__=granularities
        )
        assert {"segments", "words"} & set(answer) == keys
        segments, words = answer.pop("segments", None), answer.pop("words", None)
        assert answer == {
            "task": "transcribe",
            "language": "german",
            "duration": 2.0,
            "text": "one two",
            "usage": {"type": "duration", "seconds": 2},
        }
        if segments is not None:
            assert segments[1] == {
                "id": 1,
                "seek": 100,
                "start": 1.0,
                "end": 2.0,
                "text": "two",
                "tokens": [1],
                "temperature": 0.0,
                "avg_logprob": 0.0,
                "compression_ratio": 1.0,
                "no_speech_prob": 0.0,
            }
        if words is not None:
            assert words == [
                {"word": "one", "start": 0.0, "end": 1.0},
                {"word": "two", "start": 1.0, "end": 2.0},
            ]

    against(tmp_path, scene)


async def events_of(server: Server, file: bytes, **fields: str) -> list[Any]:
    response = await server.post(file=file, stream="true", **fields)
    assert response.status == 200, await response.text()
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert response.headers["Cache-Control"] == "no-cache"
    assert response.headers["X-Accel-Buffering"] == "no"
    *lines, last = (await response.text()).split("\n\n")
    assert last == ""
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    *events, end = [line.removeprefix("data: ") for line in lines]
    assert end == "[DONE]"
    return [json.loads(event) for event in events]


def test_a_stream_has_deltas_and_a_final_text(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        *deltas, done = await events_of(server, LONG, include__="logprobs")
        assert len(deltas) > 1
        assert {delta["type"] for delta in deltas} == {"transcript.text.delta"}
        assert all(delta["logprobs"] for delta in deltas)
        assert "".join(delta["delta"] for delta in deltas) == done["text"] == "one two three"
        assert done["type"] == "transcript.text.done"
        assert done["usage"] == {"type": "duration", "seconds": 11}
        assert done["languages"] == [{"code": "de"}]
        assert [one["token"] for one in done["logprobs"]] == ["one", "two", "three"]
        assert (await server.json(LONG))["text"] == done["text"]

    against(tmp_path, scene)


def test_a_stream_of_silence_has_an_empty_text(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        (done,) = await events_of(server, wav(recording(0, 0)), language="en")
        assert done == {
            "type": "transcript.text.done",
            "text": "",
            "usage": {"type": "duration", "seconds": 2},
        }

    against(tmp_path, scene)


def test_a_stream_that_fails_midway_ends_with_an_error(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        server.listener.fails_at = (1, EngineError("asr", "listener", "broken"))
        *deltas, failed = await events_of(server, LONG, language="en")
        assert [delta["delta"] for delta in deltas] == ["one"]
        assert failed["error"]["type"] == "server_error"
        assert failed["error"]["code"] == "engine_failed"
        assert "broken" in failed["error"]["message"]

    against(tmp_path, scene)


@pytest.mark.parametrize("stream", ["true", "false"])
@pytest.mark.parametrize(
    ("error", "status", "kind", "headers"),
    [
        (EngineError("asr", "listener", "broken"), 502, "server_error", {}),
        (
            OverloadedError("no room", retry_after_s=7, code="engine_busy"),
            429,
            "rate_limit_error",
            {"Retry-After": "7"},
        ),
    ],
)
def test_an_error_before_the_first_word_has_a_status(
    stream: str,
    error: Exception,
    status: int,
    kind: str,
    headers: Mapping[str, str],
    tmp_path: Path,
) -> None:
    async def scene(server: Server) -> None:
        server.listener.fails_at = (0, error)
        response = await server.post(file=SPOKEN, stream=stream)
        assert response.status == status
        assert headers.items() <= response.headers.items()
        assert (await error_of(response))["type"] == kind

    against(tmp_path, scene)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, AsrOptions()),
        ({"language": "de"}, AsrOptions(language="de")),
        ({"language": "German"}, AsrOptions(language="de")),
        ({"language": "de-AT"}, AsrOptions(language="de")),
        ({"language": ""}, AsrOptions()),
        ({"languages__": ["de", "en"]}, AsrOptions(languages=("de", "en"))),
        ({"languages": ["de", "en"]}, AsrOptions(languages=("de", "en"))),
        ({"prompt": "Küche"}, AsrOptions(prompt="Küche")),
        ({"keywords__": ["Sonos", "Hue"]}, AsrOptions(hotwords="Sonos, Hue")),
        ({"hotwords": "Aqara", "keywords__": "Hue"}, AsrOptions(hotwords="Aqara, Hue")),
        ({"temperature": "0"}, AsrOptions()),
        ({"temperature": "0.4"}, AsrOptions(temperatures=(0.4,))),
        ({"beam_size": "5"}, AsrOptions(beam_size=5)),
        (
            {"prefix": "<|startoftranscript|><|de|>"},
            AsrOptions(prefix="<|startoftranscript|><|de|>"),
        ),
        ({"padding": "bucket"}, AsrOptions(padding="bucket")),
        ({"no_speech_threshold": "0.2"}, AsrOptions(no_speech_threshold=0.2)),
        ({"task": "translate"}, AsrOptions(task="translate")),
        ({"response_format": "srt"}, AsrOptions(timestamps="segment")),
        ({"response_format": "text"}, AsrOptions()),
        ({"include__": "logprobs"}, AsrOptions(token_logprobs=True)),
        ({"chunking_strategy": "auto"}, AsrOptions()),
        (
            {"chunking_strategy[type]": "server_vad", "chunking_strategy[threshold]": "0.6"},
            AsrOptions(),
        ),
        ({"known_speaker_names__": ["a", "b"], "whatever": "1"}, AsrOptions()),
        ({"model": "whisper-1"}, AsrOptions()),
        ({"model": "gpt-4o-mini-transcribe"}, AsrOptions()),
        ({"model": "listener"}, AsrOptions()),
    ],
)
def test_fields_reach_the_recogniser(
    fields: Mapping[str, Any], options: AsrOptions, tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        await (await server.post(file=SPOKEN, **fields)).read()
        assert server.listener.asked == [options]

    against(tmp_path, scene)


def test_translations_detect_the_language(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(
            TRANSLATIONS, SPOKEN, language="de", stream="true", response_format="verbose_json"
        )
        answer = await response.json()
        assert (answer["task"], answer["language"]) == ("translate", "english")
        assert server.listener.asked == [AsrOptions(task="translate", timestamps="segment")]

    against(tmp_path, scene)


def test_models_are_listed(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        listed = await (await server.client.get("/v1/models")).json()
        first = {"id": "listener", "object": "model", "created": 5, "owned_by": "local"}
        assert listed["object"] == "list"
        assert first.items() <= listed["data"][0].items()
        for name in ("listener", "default", "whisper-1", "short"):
            found = await (await server.client.get(f"/v1/models/{name}")).json()
            assert found == {**listed["data"][0], "id": name}
        response = await server.client.get("/v1/models/parrot")
        error = await error_of(response)
        assert (response.status, error["code"]) == (404, "model_not_found")
        assert "listener, other" in error["message"]

    against(tmp_path, scene)
