"""`GET /api/tts`: formats, first byte, wrong requests, failures."""

import asyncio
import io
import wave
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping

import numpy as np
import pytest
from aiohttp import ClientPayloadError

from core.audio import AudioFrame
from core.http import streaming
from engines.base import WordMark
from media.files.decode import decode_file
from media.files.encode import UNKNOWN_SIZE
from tests.devices.willow.wis.servers import PickyTts, Scene, Server, against
from tests.pipeline.fakes import ToneTts
from tests.server.http.harness import error_of

pytestmark = pytest.mark.live


class EndlessTts(ToneTts):
    """A voice that never ends: 5 s of sound each millisecond, so no client keeps up."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        try:
            while True:
                await asyncio.sleep(0.001)
                yield AudioFrame(np.full(240_000, 9000, np.int16), 24_000, 0)
        finally:
            self.closed.set()


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        ("", "audio/wav"),
        ("WAV", "audio/wav"),
        ("wav", "audio/wav"),
        ("FLAC", "audio/flac"),
        ("MP3", "audio/mpeg"),
        ("ogg", "audio/ogg"),
        ("opus", "audio/ogg"),
        ("AAC", "audio/aac"),
    ],
)
def test_a_text_is_spoken_in_each_format(kind: str, content_type: str) -> None:
    async def act(server: Server) -> None:
        query = {"format": kind, "speaker": "CLB", "text": "hello there"}
        response = await server.client.get("/api/tts", params=query)
        assert (response.status, response.content_type) == (200, content_type)
        assert response.headers["Cache-Control"] == "no-store"
        found = decode_file(await response.read())
        assert 250 * 16 <= len(found) <= 400 * 16
        assert np.abs(found).max() > 5000

    against(act, Scene(tts=PickyTts()))


def test_wav_is_16_khz_mono_and_starts_before_the_voice_has_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("devices.willow.wis.tts.WHOLE_TIMEOUT_S", 0.05)
    tts = PickyTts()

    async def act(server: Server) -> None:
        tts.goes_on.clear()
        response = await server.client.get("/api/tts?text=One+sentence.+And+another+one.")
        first = await response.content.readany()
        assert first.startswith(b"RIFF")
        assert int.from_bytes(first[40:44], "little") == UNKNOWN_SIZE
        tts.goes_on.set()
        with wave.open(io.BytesIO(first + await response.read())) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        assert [clause for clause, *_ in tts.asked] == ["One sentence.", "And another one."]

    against(act, Scene(tts=tts))


def test_a_wav_file_has_its_true_sizes() -> None:
    async def act(server: Server) -> None:
        response = await server.client.get("/api/tts?text=One+sentence.+And+another+one.")
        body = await response.read()
        assert int(response.headers["Content-Length"]) == len(body)
        assert int.from_bytes(body[4:8], "little") == len(body) - 8
        assert int.from_bytes(body[40:44], "little") == len(body) - 44
        with wave.open(io.BytesIO(body)) as file:
            assert 2 * file.getnframes() == len(body) - 44

    against(act, Scene(tts=PickyTts()))


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ({"text": " a  b\n"}, ("a b", "en", "low", 1.0)),
        ({"text": "a", "speaker": "HIGH", "speed": "1.5"}, ("a", "en", "high", 1.5)),
        ({"text": "ä", "language": "de-DE"}, ("ä", "de", "tief", 1.0)),
        ({"text": "a", "speaker": "Tief"}, ("a", "de", "tief", 1.0)),
        ({"text": "a", "language": "", "speed": ""}, ("a", "en", "low", 1.0)),
        ({"text": "a", "stream_chunk_size": "20", "nocache": "1"}, ("a", "en", "low", 1.0)),
    ],
)
def test_parameters_reach_the_voice(query: Mapping[str, str], asked: tuple[object, ...]) -> None:
    tts = PickyTts()

    async def act(server: Server) -> None:
        response = await server.client.get("/api/tts", params=query)
        assert response.status == 200, await response.text()
        await response.read()
        assert tts.asked == [asked]

    against(act, Scene(tts=tts))


@pytest.mark.parametrize(
    ("query", "param", "allowed"),
    [
        ({}, "text", "the text to speak"),
        ({"text": " \n"}, "text", "the text to speak"),
        ({"text": "x" * 4097}, "text", "the limit is 4096"),
        ({"text": "-"}, "text", "nothing in text"),
        ({"text": "a", "format": "PCM"}, "format", "WAV, FLAC, MP3, OGG, OPUS, AAC"),
        ({"text": "a", "language": "xx"}, "language", "de, en"),
        ({"text": "a", "speed": "0"}, "speed", "0.25 to 4"),
        ({"text": "a", "speed": "nan"}, "speed", "0.25 to 4"),
    ],
)
def test_a_wrong_parameter_is_named_and_not_cached(
    query: Mapping[str, str], param: str, allowed: str
) -> None:
    async def act(server: Server) -> None:
        response = await server.client.get("/api/tts", params=query)
        error = await error_of(response)
        assert (response.status, error["param"]) == (400, param)
        assert allowed in error["message"]
        assert response.headers["Cache-Control"] == "no-store"

    against(act, Scene(tts=PickyTts()))


def test_a_voice_that_fails_gives_an_error_first_and_a_cut_later() -> None:
    tts = PickyTts()

    async def act(server: Server) -> None:
        tts.fails = True
        response = await server.client.get("/api/tts?text=a")
        assert (response.status, (await error_of(response))["code"]) == (502, "engine_failed")
        tts.fails, tts.breaks = False, True
        broken = await server.client.get("/api/tts?text=a")
        assert (broken.status, (await error_of(broken))["code"]) == (502, "engine_failed")
        half = await server.client.get("/api/tts?text=a&format=flac")
        assert half.status == 200
        with pytest.raises(ClientPayloadError):
            await half.read()

    against(act, Scene(tts=tts))


def test_a_client_that_disconnects_stops_the_voice(caplog: pytest.LogCaptureFixture) -> None:
    tts = PickyTts()
    tts.clause_ms = 600_000

    async def act(server: Server) -> None:
        response = await server.client.get("/api/tts?text=a")
        await response.content.readany()
        response.close()
        while True:
            if tts.closed_early:
                return
            await asyncio.sleep(0.01)

    against(act, Scene(tts=tts))
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_player_that_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STALL_S", 0.2)
    tts = EndlessTts()

    async def act(server: Server) -> None:
        response = await server.client.get("/api/tts?text=a")
        await tts.closed.wait()
        with pytest.raises(ClientPayloadError):
            await response.read()

    against(act, Scene(tts=tts))


def test_a_head_request_synthesises_nothing() -> None:
    async def act(server: Server) -> None:
        head = await server.client.head("/api/tts?text=a&format=mp3")
        assert (head.status, head.content_type) == (200, "audio/mpeg")
        wrong = await server.client.head("/api/tts")
        assert wrong.status == 400
        assert (await server.client.get("/api/ping")).status == 200

    tts = PickyTts()
    against(act, Scene(tts=tts))
    assert tts.asked == []


def test_voices_cannot_be_uploaded() -> None:
    async def act(server: Server) -> None:
        response = await server.client.post("/api/tts?speaker=../x", data=b"RIFF")
        assert (response.status, (await error_of(response))["code"]) == (
            400,
            "unsupported_operation",
        )

    against(act)


BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({**BROWSER, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "audio"}, 403),
        ({**BROWSER, "Sec-Fetch-Site": "same-site"}, 403),
        ({**BROWSER, "Referer": "http://elsewhere.example/page"}, 403),  # an older browser
        ({**BROWSER, "Sec-Fetch-Site": "same-origin"}, 200),
        ({**BROWSER, "Sec-Fetch-Site": "none"}, 200),
        ({"User-Agent": "Willow/0.4"}, 200),
    ],
)
def test_a_page_of_another_origin_plays_nothing(headers: Mapping[str, str], status: int) -> None:
    async def act(server: Server) -> None:
        for method in ("GET", "HEAD"):
            response = await server.client.request(
                method, "/api/tts", params={"text": "one"}, headers=headers
            )
            assert response.status == status
            assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
            if method == "GET" and status != 200:
                assert (await error_of(response))["code"] == "forbidden_origin"

    against(act)
