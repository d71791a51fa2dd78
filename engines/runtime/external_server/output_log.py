"""Writes an external server's output to our log in lines of bounded length, and keeps the last
lines for error messages."""

import logging
import re
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

MAX_LINE_CHARS = 500
"Longest line that is kept; some servers print their whole configuration in one line."
KEPT_LINES = 60
"""Number of last lines that are kept: room for two tracebacks, of the process that failed and of
the one that waited for it."""
SUMMARY_LINES = 4
"Number of lines that go into an error message."
SUMMARY_LINE_CHARS = 200
"Longest line in an error message, which is sent to the client."
LINES_PER_S = 50
"""Most lines that are logged per second; further ones are only counted. A server that fails in a
loop must not fill the disk."""

_ERROR_LEVELS = (" ERROR ", " CRITICAL ")

_ERROR_NAME = re.compile(r"\b\w*(Error|Exception|error:)")
_ENDS_OF_LINE = re.compile(r"[\r\n]+")


class ServerLog:
    """Splits a server's output into lines, logs them and keeps the last ones.

    `secret`: text that is replaced by `***`. `now`: returns monotonic seconds.
    """

    def __init__(self, name: str, secret: str, now: Callable[[], float]) -> None:
        self._name, self._secret, self._now = name, secret, now
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._partial = ""
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._is_ending = False
        self._second, self._logged, self._dropped = -1, 0, 0

    def begin(self) -> None:
        """Prepares for another start: drops the lines of the previous run."""
        self._lines.clear()
        self._is_ending = False

    def end(self) -> None:
        """Notes that the server was asked to end. From now on its errors are expected, and logged
        at debug level."""
        self._is_ending = True

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the output. A carriage return ends a line too, so each state of a
        progress bar is a line."""
        *lines, self._partial = _ENDS_OF_LINE.split(self._partial + self._decoder.decode(data))
        for line in lines:
            self._take(line)
        if len(self._partial) > MAX_LINE_CHARS:  # split a long line: the rest becomes another line
            self._take(self._partial)
            self._partial = ""

    def close(self) -> None:
        """Takes the last line, which may have no line end, after the server is gone."""
        self._take(self._partial)
        self._partial = ""

    def summary(self) -> str:
        """Returns the last lines that name an error, or else the last lines, for an error
        message."""
        lines = (line[-SUMMARY_LINE_CHARS:] for line in last_error_lines(tuple(self._lines)))
        return " | ".join(lines) or "none"

    def _take(self, line: str) -> None:
        if self._secret:
            line = line.replace(self._secret, "***")
        line = line.strip()[:MAX_LINE_CHARS]
        if not line:
            return
        self._lines.append(line)
        level = logging.DEBUG if self._is_ending else level_of(line)
        if logger.isEnabledFor(level) and self._has_room():
            logger.log(level, "< %s: %s", self._name, line)

    def _has_room(self) -> bool:
        """True if one more line may be logged in this second."""
        second = int(self._now())
        if second != self._second:
            if self._dropped:
                logger.warning("< %s: %d more lines", self._name, self._dropped)
            self._second, self._logged, self._dropped = second, 0, 0
        self._logged += 1
        self._dropped += self._logged > LINES_PER_S
        return self._logged <= LINES_PER_S


def level_of(line: str) -> int:
    """Returns the log level for a line. Errors are for the operator. Model servers print a dozen
    warnings in a normal start, so all the rest is at debug level."""
    head = f" {line[:80]} "
    return logging.WARNING if any(word in head for word in _ERROR_LEVELS) else logging.DEBUG


def last_error_lines(lines: Sequence[str]) -> Sequence[str]:
    """Returns the last few different lines that name an error; if there are none, the last few
    lines."""
    errors = [line for line in lines if _ERROR_NAME.search(line)]
    return list(dict.fromkeys(errors or lines))[-SUMMARY_LINES:]
