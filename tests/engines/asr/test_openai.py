"""Recognition by another server: what it is sent, and what becomes of its answers."""

import asyncio
import io
import threading
import wave
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from queue import Queue

import numpy as np
import pytest
from aiohttp import web

from core.audio import silence
from core.errors import EngineError, EngineMissing, EngineTimeout, OverloadedError
from engines.asr.openai import OpenAiAsr, Settings, create, describe
from engines.base import AsrItem, AsrOptions, AsrResult

pytestmark = pytest.mark.live

A_SECOND = silence(1000, 16_000)
PATIENCE_S = 60

Handler = Callable[[dict[str, str | bytes]], Awaitable[web.StreamResponse]]


@contextmanager
def upstream(handler: Handler) -> Iterator[str]:
    """Runs a server in a thread; yields its base address. The handler gets the form."""
    address: Queue[str] = Queue()
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def transcribe(request: web.Request) -> web.StreamResponse:
        form: dict[str, str | bytes] = {}
        for name, value in (await request.post()).items():
            form[name] = value.file.read() if isinstance(value, web.FileField) else str(value)
        return await handler(form)

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/v1/audio/transcriptions", transcribe)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address.put(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield address.get(timeout=PATIENCE_S)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
        loop.close()


@contextmanager
def engine(handler: Handler, **settings: object) -> Iterator[OpenAiAsr]:
    with upstream(handler) as url:
        found = create(Settings(base_url=url, **settings))  # type: ignore[arg-type]
        try:
            yield found
        finally:
            found.close()


def item(name: str = "a", options: AsrOptions | None = None) -> AsrItem:
    return AsrItem(name, A_SECOND, is_final=True, options=options or AsrOptions())


def test_the_form_has_the_sound_and_what_the_session_asks_for() -> None:
    forms: list[dict[str, str | bytes]] = []

    async def answer(form: dict[str, str | bytes]) -> web.StreamResponse:
        forms.append(form)
        return web.json_response({"text": "  good\n day ", "usage": {}})

    options = AsrOptions("de", prompt="as before", hotwords="Ada")
    fields = {"languages": ("en", "de"), "model": "big", "extra_fields": {"vad_filter": "true"}}
    with engine(answer, **fields) as asr:
        named, free = asr.decode([item("a", options), item("b")])
    assert (named.text, named.language, free.language) == ("good day", "de", "en")
    assert [(part.text, part.end_ms) for part in named.segments] == [("good day", 1000)]
    form = next(form for form in forms if "language" in form)
    sound = form.pop("file")
    assert form == {
        "model": "big",
        "response_format": "json",
        "language": "de",
        "prompt": "Ada. as before",
        "vad_filter": "true",
    }
    assert isinstance(sound, bytes)
    with wave.open(io.BytesIO(sound)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (16_000, 1, 16_000)


def test_sound_that_holds_no_word_is_not_sent() -> None:
    async def answer(_: dict[str, str | bytes]) -> web.StreamResponse:
        raise AssertionError

    with engine(answer) as asr:
        (result,) = asr.decode([AsrItem("a", np.zeros(0, np.int16), is_final=True)])
        assert (result.text, result.segments) == ("", ())
        assert asr.decode([]) == []


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (500, "{}", EngineError, "failed"),
        (401, "{}", EngineError, "wants another key"),
        (429, "{}", OverloadedError, "is busy"),
        (200, "<html>", EngineError, "answered with a body that has no text"),
        (200, '{"words": []}', EngineError, "answered with a body that has no text"),
    ],
)
def test_a_failure_says_what_the_server_did(
    status: int, body: str, error: type[Exception], message: str
) -> None:
    async def answer(_: dict[str, str | bytes]) -> web.StreamResponse:
        return web.Response(status=status, text=body, headers={"Retry-After": "9"})

    with engine(answer) as asr, pytest.raises(error, match=message):
        asr.decode([item(), item("b")])


def test_a_silent_server_is_given_up() -> None:
    async def answer(_: dict[str, str | bytes]) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    with (
        engine(answer, timeout_s=0.2) as asr,
        pytest.raises(EngineTimeout, match=r"no text .* 0\.2"),
    ):
        asr.decode([item()])


def test_cancelling_ends_the_request_there_and_reports_nothing() -> None:
    has_begun, was_ended = threading.Event(), threading.Event()

    async def answer(form: dict[str, str | bytes]) -> web.StreamResponse:
        if form["model"] == "whisper-1" and "language" in form:
            return web.json_response({"text": "next"})
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            was_ended.set()
        raise AssertionError

    reports: Queue[list[AsrResult] | Exception] = Queue()
    with engine(answer, timeout_s=PATIENCE_S) as asr:
        cancel = asr.begin([item()], reports.put)
        assert has_begun.wait(PATIENCE_S)
        cancel()
        assert was_ended.wait(PATIENCE_S)
        asr.begin([item("b", AsrOptions("en"))], reports.put)
        report = reports.get(timeout=PATIENCE_S)  # the first one that is reported
        assert isinstance(report, list)
        assert report[0].text == "next"
        cancel()


def test_without_an_address_it_says_what_to_set() -> None:
    with pytest.raises(EngineMissing, match="set base_url"):
        create(Settings())
    assert "secret" not in repr(Settings(api_key="secret"))
    assert describe(Settings(languages=("nl",))).languages == ("nl",)
