"""Request lines: unescaped text is escaped, everything else passes unchanged."""

import pytest

from server.http.willow_urls import MAX_LINE_BYTES, RequestLine

REST = b"Host: x\r\n\r\n"


def passed(data: bytes, step: int) -> bytes:
    line = RequestLine()
    return b"".join(line.push(data[at : at + step]) for at in range(0, len(data), step))


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize(
    ("url", "escaped"),
    [
        (b"text=turn it on", b"text=turn%20it%20on"),
        (b'text=k\xc3\xbcche #2 "now"', b"text=k%C3%BCche%20%232%20%22now%22"),
        (b"format=WAV&text=5 + 5 & more", b"format=WAV&text=5%20%2B%205%20%26%20more"),
        (b"text=a HTTP/1.1 b", b"text=a%20HTTP/1.1%20b"),
        (b"format=WAV&text=a+b%20c&x=50%", b"format=WAV&text=a+b%20c&x=50%"),
        (b"text=\r\x00\x1b", b"text=%0D%00%1B"),
    ],
)
def test_unescaped_text_in_a_url_is_escaped(url: bytes, escaped: bytes, step: int) -> None:
    before = b"GET /api/tts?" + url + b" HTTP/1.1\r\n" + REST
    assert passed(before, step) == b"GET /api/tts?" + escaped + b" HTTP/1.1\r\n" + REST


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n" + REST,
        b"GET /api/ttsx?a b HTTP/1.1\r\n",
        b"POST /api/tts?a b HTTP/1.1\r\n",
        b"GET /api/tts?a b\r\n",
        b"GET /api/tts?a HTTP/2\r\n",
        b"\x16\x03\x01\x02",
        b"POST /x HTTP/1.1\r\n\r\nGET /api/tts?a b HTTP/1.1\r\n",
        b"GET /api/tts?" + b"a " * MAX_LINE_BYTES,
    ],
)
def test_any_other_request_passes_unchanged(data: bytes, step: int) -> None:
    assert passed(data, step) == data
