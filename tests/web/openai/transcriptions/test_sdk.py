"""OpenAI's Python client, unchanged, against the transcription API."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import openai
import pytest
import uvloop
from openai import AsyncOpenAI
from openai.types.audio import (
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
    TranslationVerbose,
)

from core.errors import EngineError, OverloadedError
from server.http import connection
from tests.web.openai.transcriptions.harness import (
    ONE,
    THREE,
    TWO,
    Runner,
    Server,
    against,
    recording,
    wav,
)

pytestmark = pytest.mark.live

SPOKEN = ("spoken.wav", wav(recording(ONE, TWO)))
LONG = ("long.wav", wav(recording(ONE, 0, 0, 0, 0, TWO, 0, 0, 0, 0, THREE)))

Scene = Callable[[AsyncOpenAI, Server], Awaitable[None]]


def with_client(folder: Path, scene: Scene, run_loop: Runner = asyncio.run, **limits: int) -> None:
    async def run(server: Server) -> None:
        async with AsyncOpenAI(api_key="key", base_url=f"{server.url}/v1", max_retries=0) as client:
            await scene(client, server)

    against(folder, run, run_loop, **limits)


def test_a_file_is_transcribed(tmp_path: Path) -> None:
    async def scene(client: AsyncOpenAI, _: Server) -> None:
        plain = await client.audio.transcriptions.create(
            model="whisper-1", file=SPOKEN, language="en", prompt="Numbers.", temperature=0
        )
        assert plain.text == "one two"
        assert plain.usage is not None
        assert plain.usage.type == "duration"
        assert plain.usage.seconds == 2
        text = await client.audio.transcriptions.create(
            model="whisper-1", file=SPOKEN, response_format="text"
        )
        assert text == "one two\n"
        srt = await client.audio.transcriptions.create(
            model="whisper-1", file=SPOKEN, response_format="srt"
        )
        assert srt.startswith("1\n00:00:00,000 --> 00:00:01,000\none\n")
        vtt = await client.audio.transcriptions.create(
            model="whisper-1", file=SPOKEN, response_format="vtt"
        )
        assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> ")

    with_client(tmp_path, scene)


def test_verbose_json_with_words(tmp_path: Path) -> None:
    async def scene(client: AsyncOpenAI, _: Server) -> None:
        verbose = await client.audio.transcriptions.create(
            model="whisper-1",
            file=SPOKEN,
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
        )
        assert isinstance(verbose, TranscriptionVerbose)
        assert (verbose.language, verbose.duration, verbose.text) == ("german", 2.0, "one two")
        assert [one.text for one in verbose.segments or ()] == ["one", "two"]
        assert [(one.word, one.start) for one in verbose.words or ()] == [("one", 0), ("two", 1)]

    with_client(tmp_path, scene)


def test_logprobs_are_returned(tmp_path: Path) -> None:
    async def scene(client: AsyncOpenAI, _: Server) -> None:
        answer = await client.audio.transcriptions.create(
            model="gpt-4o-transcribe", file=SPOKEN, response_format="json", include=["logprobs"]
        )
        assert [one.token for one in answer.logprobs or ()] == ["one", "two"]

    with_client(tmp_path, scene)


def test_a_stream_yields_deltas(tmp_path: Path) -> None:
    async def scene(client: AsyncOpenAI, _: Server) -> None:
        stream = await client.audio.transcriptions.create(
            model="gpt-4o-transcribe",
            file=LONG,
            stream=True,
            chunking_strategy={"type": "server_vad", "silence_duration_ms": 200},
        )
        events = [event async for event in stream]
        deltas = [one.delta for one in events if isinstance(one, TranscriptionTextDeltaEvent)]
        (done,) = [one for one in events if isinstance(one, TranscriptionTextDoneEvent)]
        assert "".join(deltas) == done.text == "one two three"
        assert len(deltas) > 1

    with_client(tmp_path, scene)


def test_a_stream_that_fails_raises(tmp_path: Path) -> None:
    async def scene(client: AsyncOpenAI, server: Server) -> None:
        server.listener.fails_at = (1, EngineError("asr", "listener", "broken"))
        stream = await client.audio.transcriptions.create(
            model="gpt-4o-transcribe", file=LONG, stream=True, language="en"
        )
        with pytest.raises(openai.APIError, match="broken"):
            async for _ in stream:
                pass

    with_client(tmp_path, scene)


@pytest.mark.filterwarnings("ignore:deprecated")  # the library calls whisper-1 so
def test_a_file_is_translated(tmp_path: Path) -> None:
    async def scene(client: AsyncOpenAI, server: Server) -> None:
        plain = await client.audio.translations.create(model="whisper-1", file=SPOKEN)
        assert plain.text == "one two"
        verbose = await client.audio.translations.create(
            model="whisper-1", file=SPOKEN, response_format="verbose_json"
        )
        assert isinstance(verbose, TranslationVerbose)
        assert (verbose.language, verbose.duration) == ("english", 2.0)
        assert {options.task for options in server.listener.asked} == {"translate"}
        assert {options.language for options in server.listener.asked} == {None}

    with_client(tmp_path, scene)


def test_models_are_listed(tmp_path: Path) -> None:
    async def scene(client: AsyncOpenAI, _: Server) -> None:
        assert [model.id async for model in client.models.list()] == ["listener", "other"]
        assert (await client.models.retrieve("other")).owned_by == "tests"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("parrot")

    with_client(tmp_path, scene)


def test_errors_have_the_classes_of_the_client(tmp_path: Path) -> None:
    async def scene(client: AsyncOpenAI, server: Server) -> None:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.audio.transcriptions.create(model="parrot", file=SPOKEN)
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError) as bad:
            await client.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"text"))
        assert (bad.value.code, bad.value.type) == ("unsupported_audio", "invalid_request_error")
        server.listener.fails_at = (0, OverloadedError("full", retry_after_s=1, code="engine_busy"))
        with pytest.raises(openai.RateLimitError) as busy:
            await client.audio.transcriptions.create(model="whisper-1", file=SPOKEN)
        assert (busy.value.status_code, busy.value.code) == (429, "too_many_requests")

    with_client(tmp_path, scene)


def test_a_busy_server_is_retried(tmp_path: Path) -> None:
    async def scene(client: AsyncOpenAI, server: Server) -> None:
        server.listener.fails_at = (0, OverloadedError("full", retry_after_s=1, code="engine_busy"))
        patient = client.with_options(max_retries=1)
        answer = await patient.audio.transcriptions.create(model="whisper-1", file=SPOKEN)
        assert answer.text == "one two"

    with_client(tmp_path, scene)


def test_a_large_upload_passes_every_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the server's own loop, which reads larger pieces than the parser passes on at once."""
    monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 2)
    noise = np.random.default_rng(1).integers(-3000, 3000, 55 * 16000, np.int16)
    size_bytes = 9_000_000

    async def scene(client: AsyncOpenAI, _: Server) -> None:
        file = (wav(noise) + bytes(size_bytes))[:size_bytes]
        for _attempt in range(3):
            answer = await client.audio.transcriptions.create(model="whisper-1", file=file)
            assert answer.usage is not None
            assert answer.usage.type == "duration"
            assert answer.usage.seconds == 55

    with_client(tmp_path, scene, uvloop.run, max_bytes=size_bytes)


def test_a_timeout_of_the_client_frees_everything(tmp_path: Path) -> None:
    async def scene(client: AsyncOpenAI, server: Server) -> None:
        server.listener.is_open.clear()
        with pytest.raises(openai.APITimeoutError):
            await client.with_options(timeout=0.5).audio.transcriptions.create(
                model="whisper-1", file=SPOKEN
            )
        assert server.listener.asked

    with_client(tmp_path, scene)
