"""Escapes raw text in request lines: Willow devices put the text to speak into the URL unescaped.
Other servers in front of WIS let that pass; our HTTP parser ends a URL at its first space."""

import re

START = b"GET /api/tts?"
"Beginning of a request line that may hold raw text. All other requests pass unchanged."

MAX_LINE_BYTES = 8190
"Longest request line that is held back; the limit of the HTTP parser."

_LINE = re.compile(rb"GET (.*) (HTTP/1\.[01]\r?)", re.DOTALL)
"Request line with its target and version."
_RAW = re.compile(rb'[^!-~]|["#<>\\^`{|}]|[&+](?= )')
"""Bytes that a URL cannot hold, or that would end or change the text. `&` and `+` before a space
belong to the text."""


class RequestLine:
    """Holds back the request line of a new connection until it is complete, and escapes raw text.
    Only the first request of a connection is changed: a Willow device opens a new connection for
    each text."""

    def __init__(self) -> None:
        self._buffer: bytearray | None = bytearray()

    def push(self, data: bytes) -> bytes:
        """Takes received bytes, and returns the bytes for the parser; none until the line is
        complete."""
        if self._buffer is None:
            return data
        self._buffer += data
        line, newline, rest = bytes(self._buffer).partition(b"\n")
        may_hold_text = (
            line.startswith(START) if len(line) >= len(START) else START.startswith(line)
        )
        if may_hold_text and not newline and len(line) <= MAX_LINE_BYTES:
            return b""
        self._buffer = None
        return (escape_line(line) if may_hold_text else line) + newline + rest


def escape_line(line: bytes) -> bytes:
    """Returns the request line with raw bytes percent-encoded."""
    match = _LINE.fullmatch(line)
    if match is None:
        return line
    url = _RAW.sub(lambda byte: b"%%%02X" % byte[0][0], match[1])
    return b"GET " + url + b" " + match[2]
