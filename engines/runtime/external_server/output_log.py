"""What a server prints, as lines of bounded length: into our log, and the last of it for errors."""

import logging
import re
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

MAX_LINE_CHARS = 500
"Of one line; vLLM prints its whole configuration in one."
KEPT_LINES = 60
"A traceback of vLLM's engine process and, after it, one of the process that waited for it."
TOLD_LINES = 4
TOLD_LINE_CHARS = 200
"An error travels to the client."
LINES_PER_S = 50
"More are only counted: a server that fails in a loop must not fill the disk."

_ERRORS = (" ERROR ", " CRITICAL ")

_NAMES_AN_ERROR = re.compile(r"\b\w*(Error|Exception|error:)")
_ENDS_OF_LINE = re.compile(r"[\r\n]+")


class ServerLog:
    """Takes bytes as they come. `secret` is blotted out. `now`: monotonic seconds."""

    def __init__(self, name: str, secret: str, now: Callable[[], float]) -> None:
        self._name, self._secret, self._now = name, secret, now
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._open = ""
        self._kept: deque[str] = deque(maxlen=KEPT_LINES)
        self._is_ending = False
        self._second, self._logged, self._dropped = -1, 0, 0

    def begin(self) -> None:
        """Another start: what was said before explains nothing any more."""
        self._kept.clear()
        self._is_ending = False

    def end(self) -> None:
        """It was told to end: what it complains of from now on means nothing."""
        self._is_ending = True

    def feed(self, data: bytes) -> None:
        """A progress bar, which ends its lines with a carriage return, is lines too."""
        *lines, self._open = _ENDS_OF_LINE.split(self._open + self._decoder.decode(data))
        for line in lines:
            self._take(line)
        if len(self._open) > MAX_LINE_CHARS:  # the rest of it will be a line of its own
            self._take(self._open)
            self._open = ""

    def close(self) -> None:
        """The server is gone: its last line may have no end."""
        self._take(self._open)
        self._open = ""

    def told(self) -> str:
        """What it says is wrong, or the last that it said; for an error."""
        told = (line[-TOLD_LINE_CHARS:] for line in error_lines(tuple(self._kept)))
        return " | ".join(told) or "it said nothing"

    def _take(self, line: str) -> None:
        if self._secret:
            line = line.replace(self._secret, "***")
        line = line.strip()[:MAX_LINE_CHARS]
        if not line:
            return
        self._kept.append(line)
        level = logging.DEBUG if self._is_ending else level_of(line)
        if logger.isEnabledFor(level) and self._has_room():
            logger.log(level, "< %s: %s", self._name, line)

    def _has_room(self) -> bool:
        """For one more line in this second."""
        second = int(self._now())
        if second != self._second:
            if self._dropped:
                logger.warning("< %s: %d more lines", self._name, self._dropped)
            self._second, self._logged, self._dropped = second, 0, 0
        self._logged += 1
        self._dropped += self._logged > LINES_PER_S
        return self._logged <= LINES_PER_S


def level_of(line: str) -> int:
    """Its errors are for the operator. vLLM warns a dozen times in a good start, so that the rest
    is for who debugs."""
    head = f" {line[:80]} "
    return logging.WARNING if any(word in head for word in _ERRORS) else logging.DEBUG


def error_lines(lines: Sequence[str]) -> Sequence[str]:
    """The last few different lines that name an error; without such, the last few."""
    errors = [line for line in lines if _NAMES_AN_ERROR.search(line)]
    return list(dict.fromkeys(errors or lines))[-TOLD_LINES:]
