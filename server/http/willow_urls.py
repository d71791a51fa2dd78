"""URLs with a raw text in them: Willow's devices put what shall be spoken there as it is.

Other servers in front of WIS let that pass; our HTTP parser ends a URL at its first space.
"""

import re

START = b"GET /api/tts?"

MAX_LINE_BYTES = 8190  # what the parser takes

_LINE = re.compile(rb"GET (.*) (HTTP/1\.[01]\r?)", re.DOTALL)
_RAW = re.compile(rb'[^!-~]|["#<>\\^`{|}]|[&+](?= )')
"What a URL cannot hold, and what would end or change the text: before a space it is a part of it."


class RequestLine:
    """The first bytes of a connection, on their way to the parser. A device opens one for each."""

    def __init__(self) -> None:
        self._waiting: bytearray | None = bytearray()

    def push(self, data: bytes) -> bytes:
        """What the parser may have now; empty until the line is complete."""
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
    """The line with percent-escapes for what is raw."""
    found = _LINE.fullmatch(line)
    if found is None:
        return line
    url = _RAW.sub(lambda raw: b"%%%02X" % raw[0][0], found[1])
    return b"GET " + url + b" " + found[2]
