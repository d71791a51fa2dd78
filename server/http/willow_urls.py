"""Escapes raw text in request lines: Willow devices put the text to speak into the URL unescaped.
Other servers in front of WIS let that pass; our HTTP parser ends a URL at its first space."""

import re

START = b"GET /api/tts?"
"Beginning of a request that may hold raw text. All other requests pass unchanged."

MAX_LINE_BYTES = 8190  # the parser's limit

_LINE = re.compile(rb"GET (.*) (HTTP/1\.[01]\r?)", re.DOTALL)
"Request line with its target and version."
_RAW = re.compile(rb'[^!-~]|["#<>\\^`{|}]|[&+](?= )')
"""Bytes that a URL cannot hold, or that would end or change the text. `&` and `+` before a space
belong to the text."""


class RequestLine:
    """Holds back the request line of a new connection until it is complete, and escapes raw text.
    Only the first request of a connection: a Willow device opens a new connection for each text."""

    def __init__(self) -> None:
        self._waiting: bytearray | None = bytearray()

    def push(self, data: bytes) -> bytes:
        """Takes received bytes; returns those for the parser, empty until the line is complete."""
        if self._waiting is None:
            return data
        self._waiting += data
        line, end, rest = bytes(self._waiting).partition(b"\n")
        is_ours = line.startswith(START) if len(line) >= len(START) else START.startswith(line)
        if is_ours and not end and len(line) <= MAX_LINE_BYTES:
            return b""
        self._waiting = None
        return (escaped(line) if is_ours else line) + end + rest


def escaped(line: bytes) -> bytes:
    """Returns the request line with raw bytes percent-encoded."""
    found = _LINE.fullmatch(line)
    if found is None:
        return line
    url = _RAW.sub(lambda raw: b"%%%02X" % raw[0][0], found[1])
    return b"GET " + url + b" " + found[2]
