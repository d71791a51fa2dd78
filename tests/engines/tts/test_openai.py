"""A voice over HTTP, with a real server that also sends wrong data, hangs and disconnects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from core.audio import AudioFrame
from core.errors import (
    ConfigError,
    EngineError,
    EngineMissing,
    EngineTimeout,
    EngineUnreachable,
    OverloadedError,
    RequestError,
)
from engines.registry import load
from engines.tts.openai import OpenAiTts, PcmStream, Settings, create
from tests.engines.tts.speech_server import Handler, pcm_bytes, serving, speech

pytestmark = pytest.mark.live

PATIENCE_S = 30


async def text_chunks(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def frames_of(tts: OpenAiTts, *texts: str, **wish: Any) -> list[AudioFrame]:
    async with aclosing(tts.speak(text_chunks(*texts), language="en", **wish)) as frames:
        return [frame async for frame in frames]


def with_server(
    handler: Handler, test: Callable[[OpenAiTts], Awaitable[None]], **settings: Any
) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), serving(handler) as url:
            tts = create(Settings(base_url=url, **settings))
            try:
                await test(tts)
            finally:
                await tts.aclose()

    asyncio.run(scenario())


def fails(handler: Handler, error: type[Exception], match: str, **settings: Any) -> None:
    async def test(tts: OpenAiTts) -> None:
        with pytest.raises(error, match=match) as caught:
            await frames_of(tts, "the secret word")
        assert "secret word" not in str(caught.value)
        assert "sk-mine" not in str(caught.value)

    with_server(handler, test, **settings)


async def begin_response(request: web.Request, data: bytes, **headers: str) -> web.StreamResponse:
    """Sends the beginning of an answer."""
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    await response.write(data)
    return response


def test_the_audio_equals_the_servers_to_the_sample() -> None:
    asked: list[tuple[dict[str, Any], str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append((await request.json(), request.headers.get("Authorization", "")))
        return await speech(request)

    async def test(tts: OpenAiTts) -> None:
        frames = await frames_of(tts, "Hello there.", " ... ", "Good bye.", voice="nova", speed=2)
        sound = np.concatenate([frame.pcm for frame in frames])
        expected = pcm_bytes("Hello there.", 2) + pcm_bytes("Good bye.", 2)
        assert sound.astype("<i2").tobytes() == expected
        assert [f.start for f in frames] == [0, *(f.end for f in frames[:-1])]
        assert max(frame.duration_ms for frame in frames) <= 200

    with_server(
        handler, test, api_key="sk-mine", instructions="calm", voices={"en": ("alloy", "nova")}
    )
    (first, key), (second, _) = asked
    assert first == {
        "model": "tts-1",
        "input": "Hello there.",
        "voice": "nova",
        "response_format": "pcm",
        "speed": 2,
        "instructions": "calm",
    }
    assert second["input"] == "Good bye."
    assert key == "Bearer sk-mine"


def test_audio_is_yielded_while_it_arrives() -> None:
    gate = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await begin_response(request, bytes(4801))
        await gate.wait()
        await response.write(bytes(4799))
        return response

    async def test(tts: OpenAiTts) -> None:
        async with aclosing(tts.speak(text_chunks("hello"), language="en")) as frames:
            first = await anext(frames)
            assert len(first.pcm) == 2400
            gate.set()
            assert [len(frame.pcm) async for frame in frames] == [2400]

    with_server(handler, test)


def test_closing_the_generator_cancels_the_request_on_the_server() -> None:
    cancelled = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            await begin_response(request, bytes(4800))
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async def test(tts: OpenAiTts) -> None:
        async with aclosing(tts.speak(text_chunks("hello", "never"), language="en")) as frames:
            await anext(frames)
        await cancelled.wait()

    with_server(handler, test)


def test_cancelling_before_any_audio_cancels_the_request() -> None:
    there, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            there.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async def test(tts: OpenAiTts) -> None:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(frames_of(tts, "hello"))
            await there.wait()
            task.cancel()
        await cancelled.wait()

    with_server(handler, test)


def test_a_stream_that_breaks_off_is_an_error() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await begin_response(request, bytes(4800))
        assert request.transport is not None
        request.transport.close()
        return response

    fails(handler, EngineUnreachable, "the connection broke")


def test_a_body_shorter_than_its_length_header_is_an_error() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await begin_response(request, bytes(4800), **{"Content-Length": "9600"})
        assert request.transport is not None
        request.transport.close()
        return response

    fails(handler, EngineUnreachable, "the connection broke")


def test_a_server_that_stops_sending_times_out() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await begin_response(request, bytes(4800))
        await asyncio.Event().wait()
        return response

    fails(handler, EngineTimeout, "no data for 0.05 s", audio_timeout_s=0.05)


def test_a_server_that_never_begins_times_out() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    fails(handler, EngineTimeout, "no audio within 0.05 s", first_audio_timeout_s=0.05)


@pytest.mark.parametrize(
    ("status", "error", "match"),
    [
        (400, EngineError, r"refused the request \(400: no '\[...\]' for \*\*\*\)"),
        (401, EngineError, "wants another key"),
        (404, EngineError, "does not know this model"),
        (500, EngineError, r"failed \(500"),
        (503, OverloadedError, "is not ready"),
    ],
)
def test_errors_of_refusals_name_the_remedy(
    status: int, error: type[Exception], match: str
) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"error": {"message": "no 'the secret word' for sk-mine"}}, status=status
        )

    fails(handler, error, match, api_key="sk-mine")


def test_a_busy_server_is_retried_once() -> None:
    count = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        if count == 1:
            return web.Response(status=503, headers={"Retry-After": "0"})
        return await speech(request)

    async def test(tts: OpenAiTts) -> None:
        assert await frames_of(tts, "Hello.")

    with_server(handler, test)
    assert count == 2


def test_a_server_that_stays_busy_gives_the_time_to_retry() -> None:
    count = 0

    async def handler(_: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        return web.Response(status=429, headers={"Retry-After": "30"})

    async def test(tts: OpenAiTts) -> None:
        with pytest.raises(OverloadedError, match="is busy, or") as caught:
            await frames_of(tts, "Hello.")
        assert (caught.value.code, caught.value.retry_after_s) == ("engine_busy", 30)

    with_server(handler, test)
    assert count == 1


def test_a_started_clause_is_not_requested_again() -> None:
    count = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        response = await begin_response(request, bytes(4800))
        assert request.transport is not None
        request.transport.close()
        return response

    fails(handler, EngineUnreachable, "broke")
    assert count == 1


@pytest.mark.parametrize(
    ("kind", "data", "match"),
    [
        ("audio/wav", b"RIFF----WAVE", "a WAV file where PCM"),
        ("audio/mpeg", b"ID3\x04----", "an MP3 file"),
        ("application/json", b"{}", "application/json"),
    ],
)
def test_audio_files_are_not_played_as_samples(kind: str, data: bytes, match: str) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=data, content_type=kind)

    fails(handler, EngineError, match)


@pytest.mark.parametrize("data", [b"", b"\x01"])
def test_less_than_a_sample_gives_no_audio(data: bytes) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=data, content_type="audio/pcm")

    async def test(tts: OpenAiTts) -> None:
        assert await frames_of(tts, "Hello.") == []

    with_server(handler, test)


@given(st.binary(max_size=200), st.lists(st.integers(1, 9), min_size=1), st.sampled_from([2, 10]))
def test_samples_may_be_cut_anywhere(data: bytes, sizes: list[int], most: int) -> None:
    stream, out, at, turn = PcmStream(most), [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        out += list(stream.push(data[at : at + size]))
        at, turn = at + size, turn + 1
    assert b"".join(pcm.astype("<i2").tobytes() for pcm in out) == data[: len(data) // 2 * 2]
    assert all(0 < len(pcm) * 2 <= most for pcm in out)


def test_a_missing_server_is_reported() -> None:
    async def scenario() -> None:
        async with serving() as url:
            pass
        tts = create(Settings(base_url=url))
        with pytest.raises(EngineUnreachable, match="no connection"):
            await frames_of(tts, "hello")
        await tts.aclose()

    asyncio.run(scenario())


def test_wrong_settings_are_refused_and_no_key_is_shown(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match="set base_url"):
        load("tts", "openai", {})
    for url in ("ftp://x", "http://", "nonsense"):
        with pytest.raises(ConfigError, match="not an http:// or https:// address"):
            load("tts", "openai", {"base_url": url})
    with pytest.raises(ConfigError, match="a key goes into api_key"):
        load("tts", "openai", {"base_url": "http://me:sk-mine@host/v1"})
    with pytest.raises(ConfigError, match="FileNotFoundError"):
        load("tts", "openai", {"base_url": "http://x", "api_key_file": str(tmp_path / "no")})
    with pytest.raises(ConfigError, match="length >= 1"):
        load("tts", "openai", {"base_url": "http://x", "voices": {"en": []}})
    with pytest.raises(ConfigError, match="both set"):
        load("tts", "openai", {"base_url": "http://x", "api_key": "a", "api_key_file": "b"})
    assert "sk-mine" not in repr(Settings(base_url="http://x", api_key="sk-mine"))


@pytest.mark.parametrize(
    ("wish", "match"),
    [({"voice": "nobody"}, "no voice 'nobody'; for en it has alloy"), ({"speed": 9}, "speed 9")],
)
def test_wrong_requests_are_refused_without_the_server(wish: dict[str, Any], match: str) -> None:
    with pytest.raises(RequestError, match=match):
        asyncio.run(frames_of(create(Settings(base_url="http://127.0.0.1:1")), "hi", **wish))
