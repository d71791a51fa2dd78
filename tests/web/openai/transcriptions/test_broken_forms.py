"""Endless bodies and broken forms get an error response, and use bounded memory."""

import tracemalloc
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from aiohttp import FormData

from server.http import connection
from tests.loop import longest_turn
from tests.server.http.harness import error_of
from tests.web.openai.transcriptions.harness import (
    MAX_UPLOAD_BYTES,
    ONE,
    TRANSCRIPTIONS,
    Server,
    against,
    recording,
    wav,
)
from tests.web.openai.transcriptions.raw_requests import PART, head, raw

pytestmark = pytest.mark.live

SPOKEN = wav(recording(ONE))


def test_two_gigabytes_are_refused_before_they_are_sent(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        answer = await raw(server, head(Content_Length=str(2 * 2**30)))
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert str(2 * 2**30).encode() in answer

    against(tmp_path, scene)


def test_an_endless_body_is_cut_off_in_bounded_memory(tmp_path: Path) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        while True:
            sent += 65_536
            yield bytes(65_536)

    async def scene(server: Server) -> None:
        tracemalloc.start()
        async with server.client.post(
            TRANSCRIPTIONS,
            data=endless(),
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        ) as response:
            error = await error_of(response)
            assert (response.status, error["code"]) == (413, "audio_too_large")
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert sent > MAX_UPLOAD_BYTES
        assert peak_bytes < 3_000_000

    against(tmp_path, scene)


@pytest.mark.parametrize("name", ["known_speaker_references[]", "whatever", "prompt"])
def test_endless_fields_are_cut_off(name: str, tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        sent = FormData()
        sent.add_field(name, bytes(7_000_000), filename="x")
        response = await server.client.post(TRANSCRIPTIONS, data=sent)
        assert (response.status, (await error_of(response))["code"]) == (413, "too_large")

    against(tmp_path, scene)


FORMS: Mapping[str, bytes] = {
    "nothing": b"",
    "no boundary": b"hello\r\nworld\r\n",
    "only an end": b"--b--\r\n",
    "cut in a header": b"--b\r\nContent-Dispo",
    "cut in a field": PART % b"model" + b"defa",
    "cut in the file": PART % b"file" + SPOKEN[:1000],
    "two files": PART % b"file" + b"x\r\n" + PART % b"file" + b"y\r\n--b--\r\n",
    "a form in the form": (
        b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c--\r\n--b--\r\n"
    ),
    "a thousand headers": b"--b\r\n" + b"X-A: b\r\n" * 1000 + b"\r\n",
    "a header without end": b"--b\r\nX: " + b"x" * 100_000,
    "a wrong length": b"--b\r\nContent-Length: 99\r\n\r\nx\r\n--b--\r\n",
    "no text": PART % b"prompt" + b"\xff\xfe\r\n--b--\r\n",
    "a name of no text": PART % b"\xff" + b"x\r\n--b--\r\n",
    "a long field with a name of no text": (
        PART % b"prompt[\xff]" + bytes(70_000) + b"\r\n--b--\r\n"
    ),
    "no name": b"--b\r\n\r\nx\r\n--b--\r\n",
    "a charset that is too long": PART % b"_charset_" + b"x" * 40 + b"\r\n--b--\r\n",
}


@pytest.mark.parametrize("sent", FORMS.values(), ids=FORMS)
def test_a_broken_form_is_refused(sent: bytes, tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        answer = await raw(server, head(Content_Length=str(len(sent))), sent)
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert b'"invalid_form"' in answer or b'"missing_required_parameter"' in answer, answer

    against(tmp_path, scene)


@pytest.mark.filterwarnings("ignore::aiohttp.multipart.BadContentDispositionHeader")
def test_a_form_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    whole = PART % b"model" + b"default\r\n" + PART % b"file" + SPOKEN[:60] + b"\r\n--b--\r\n"

    async def scene(server: Server) -> None:
        for cut in range(0, len(whole) - 2, 7):
            answer = await raw(server, head(Content_Length=str(cut)), whole[:cut])
            assert answer.startswith(b"HTTP/1.1 400 "), (cut, answer)
        answer = await raw(server, head(Content_Length=str(len(whole))), whole)
        assert answer.startswith(b"HTTP/1.1 200 "), answer

    against(tmp_path, scene)


def test_a_form_that_stalls_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 0.1)

    async def scene(server: Server) -> None:
        for begun in (b"--b\r\nX", PART % b"model" + b"defa", PART % b"file" + SPOKEN[:1000]):
            answer = await raw(server, head(Content_Length="5000"), begun)
            assert answer.startswith(b"HTTP/1.1 408 "), answer
            assert b"no data of the body arrived for" in answer

    against(tmp_path, scene)


MAX_TURN_S = 0.02
"Longest processor time, in seconds, of one turn of the loop."

ATTEMPTS = 3
"A busy neighbour on the same core makes a turn look longer; a parser that never yields always is."

MANY: Mapping[str, bytes] = {
    "parts": (PART % b"x" + b"1\r\n") * 15_000 + b"--b--\r\n",
    "parts with a length": b"--b\r\nContent-Length: 1\r\n\r\nx\r\n" * 15_000 + b"--b--\r\n",
    "lines before it": b"\n" * 500_000 + b"--b--\r\n",
}


@pytest.mark.parametrize("sent", MANY.values(), ids=MANY)
def test_a_form_of_many_parts_does_not_block_the_loop(sent: bytes, tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        turns_s: list[float] = []
        while len(turns_s) < ATTEMPTS and min(turns_s, default=MAX_TURN_S) >= MAX_TURN_S:
            async with longest_turn() as longest:
                answer = await raw(server, head(Content_Length=str(len(sent))), sent)
            assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ")), answer
            turns_s.append(longest.cpu_s)
        assert min(turns_s) < MAX_TURN_S

    against(tmp_path, scene)
