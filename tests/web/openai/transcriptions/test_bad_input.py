"""Wrong forms get the documented status and a message that names the field."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.media.files.hostile_files import caf_chunk, monkeys_audio
from tests.server.http.harness import error_of
from tests.shared import shared_data
from tests.web.openai.transcriptions.harness import (
    MAX_UPLOAD_BYTES,
    ONE,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    Server,
    against,
    recording,
    wav,
)

pytestmark = pytest.mark.live

SPOKEN = wav(recording(ONE))


@pytest.mark.parametrize(
    ("fields", "status", "code", "param", "message"),
    [
        ({"model": ""}, 400, "missing_required_parameter", "model", "'model'"),
        ({"model": "parrot"}, 404, "model_not_found", "model", "listener"),
        ({"language": "klingon"}, 400, "unsupported_language", "language", "de, el, en"),
        ({"language": "fr"}, 400, "unsupported_language", "language", "en, de"),
        ({"languages__": ["de", "xx"]}, 400, "unsupported_language", "languages[]", "de, el, en"),
        ({"languages__": ["de", "fr"]}, 400, "unsupported_language", "languages[]", "en, de"),
        ({"response_format": "xml"}, 400, "invalid_value", "response_format", "verbose_json, vtt"),
        ({"beam_size": "0"}, 400, "invalid_value", "beam_size", "from 1 to 10"),
        ({"beam_size": "1000"}, 400, "invalid_value", "beam_size", "from 1 to 10"),
        ({"beam_size": "two"}, 400, "invalid_value", "beam_size", "from 1 to 10"),
        ({"temperature": "-0.1"}, 400, "invalid_value", "temperature", "from 0 to 1"),
        ({"temperature": "2"}, 400, "invalid_value", "temperature", "from 0 to 1"),
        ({"temperature": "nan"}, 400, "invalid_value", "temperature", "from 0 to 1"),
        ({"temperature": "hot"}, 400, "invalid_value", "temperature", "from 0 to 1"),
        ({"no_speech_threshold": "1.5"}, 400, "invalid_value", "no_speech_threshold", "0 to 1"),
        ({"padding": "30s"}, 400, "invalid_value", "padding", "bucket, longest, max, nopad"),
        ({"task": "sing"}, 400, "invalid_value", "task", "transcribe, translate"),
        ({"stream": "maybe"}, 400, "invalid_value", "stream", "true, false"),
        ({"stream": "true", "response_format": "srt"}, 400, "invalid_value", "stream", "json or"),
        ({"include__": "tokens"}, 400, "invalid_value", "include[]", "logprobs"),
        (
            {"include__": "logprobs", "response_format": "vtt"},
            400,
            "invalid_value",
            "include[]",
            "json",
        ),
        (
            {"timestamp_granularities__": "word"},
            400,
            "invalid_value",
            "timestamp_granularities[]",
            "verbose_json",
        ),
        (
            {"timestamp_granularities__": ["word", "letter"], "response_format": "verbose_json"},
            400,
            "invalid_value",
            "timestamp_granularities[]",
            "segment, word",
        ),
        ({"keywords__": ["x"] * 101}, 400, "invalid_value", "keywords[]", "at most 100"),
        ({"prompt": "x" * 5000}, 400, "invalid_value", "prompt", "4000"),
        ({"prompt": "x" * 70_000}, 413, "too_large", "prompt", "65536"),
        ({"prefix": "<|en|>", "language": "en"}, 400, "invalid_value", "prefix", "language"),
        ({"chunking_strategy": "vad"}, 400, "invalid_value", "chunking_strategy", "auto"),
        (
            {"chunking_strategy[type]": "server_vad", "chunking_strategy[threshold]": "7"},
            400,
            "invalid_value",
            "chunking_strategy[threshold]",
            "from 0 to 1",
        ),
        (
            {"chunking_strategy[threshold]": "0.5"},
            400,
            "missing_required_parameter",
            "chunking_strategy[type]",
            "chunking_strategy[type]",
        ),
    ],
)
def test_a_wrong_field_is_named(
    fields: Mapping[str, Any],
    status: int,
    code: str,
    param: str,
    message: str,
    tmp_path: Path,
) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(file=SPOKEN, **fields)
        error = await error_of(response)
        assert (response.status, error["code"], error["param"]) == (status, code, param)
        assert error["type"] == "invalid_request_error"
        assert message in error["message"]
        assert len(error["message"]) < 1000
        assert not server.listener.asked

    against(tmp_path, scene)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"task": "translate"}, "task"),
        ({"prefix": "<|en|>"}, "prefix"),
        ({"include__": "logprobs"}, "include[]"),
        (
            {"timestamp_granularities__": "word", "response_format": "verbose_json"},
            "timestamp_granularities[]",
        ),
    ],
)
def test_a_feature_that_the_model_lacks_is_refused(
    fields: Mapping[str, str], param: str, tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        server.listener.able = ()
        server.listener.__post_init__()
        response = await server.post(file=SPOKEN, **fields)
        error = await error_of(response)
        assert (response.status, error["code"]) == (400, "unsupported_parameter")
        assert error["param"] == param

    against(tmp_path, scene)


@pytest.mark.parametrize("path", [TRANSCRIPTIONS, TRANSLATIONS])
@pytest.mark.parametrize(
    ("file", "code", "message"),
    [
        (None, "missing_required_parameter", "'file'"),
        (b"", "unsupported_audio", "unsupported audio"),
        (b"turn on the lamp", "unsupported_audio", "unsupported audio"),
        (monkeys_audio(10**8), "unsupported_audio", "allowed are wav, w64, aiff, flac, mp3"),
        (caf_chunk(2**62), "unsupported_audio", "allowed are wav, w64, aiff, flac, mp3"),
        (wav(recording()), "unsupported_audio", "no audio samples"),
        (bytes(5000), "unsupported_audio", "unsupported audio"),
        (SPOKEN[:40], "unsupported_audio", "unsupported audio"),
    ],
)
def test_a_wrong_file_is_refused(
    path: str, file: bytes | None, code: str, message: str, tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        for stream in ("true", "false"):
            response = await server.post(path, file, stream=stream)
            error = await error_of(response)
            assert (response.status, error["code"], error["param"]) == (400, code, "file")
            assert message in error["message"]

    against(tmp_path, scene)


MALFORMED = (
    "malformed-awful.wav",
    "malformed-bad.wav",
    "malformed-evil.wav",
    "malformed-null.wav",
)


def test_a_cut_file_of_any_container_is_transcribed_or_refused(tmp_path: Path) -> None:
    """Each recording is recognised or refused, and the next request is served."""
    files = sorted(shared_data("codecs").iterdir())
    assert {*MALFORMED} < {file.name for file in files}

    async def scene(server: Server) -> None:
        for file in files:
            response = await server.post(file=file.read_bytes())
            if file.name in MALFORMED:
                error = await error_of(response)
                assert (response.status, error["code"]) == (400, "unsupported_audio"), file
            else:
                assert response.status == 200, (file, await response.text())
                assert (await response.json())["usage"]["seconds"] >= 2

    against(tmp_path, scene)


def test_audio_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(file=wav(recording(*[0] * 61)))
        error = await error_of(response)
        assert (response.status, error["code"]) == (413, "audio_too_long")
        assert "60 s" in error["message"]

    against(tmp_path, scene)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(file=bytes(MAX_UPLOAD_BYTES + 1))
        error = await error_of(response)
        assert (response.status, error["code"], error["param"]) == (413, "audio_too_large", "file")
        assert str(MAX_UPLOAD_BYTES) in error["message"]

    against(tmp_path, scene)


def test_the_size_of_all_uploads_together_is_limited(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(file=bytes(20_000))
        assert (response.status, response.headers["Retry-After"]) == (503, "5")

    against(tmp_path, scene, max_total_bytes=10_000)


@pytest.mark.parametrize(
    ("content_type", "status", "code"),
    [
        ("application/json", 415, "unsupported_media_type"),
        ("audio/wav", 415, "unsupported_media_type"),
        ("multipart/form-data", 400, "invalid_form"),
    ],
)
def test_bodies_that_are_not_forms_are_refused(
    content_type: str, status: int, code: str, tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        response = await server.client.post(
            TRANSCRIPTIONS, data=b"{}", headers={"Content-Type": content_type}
        )
        assert (response.status, (await error_of(response))["code"]) == (status, code)

    against(tmp_path, scene)
