"""Codes with which a terminal shows text in a style, or writes a line again (ECMA-48)."""

import time
from collections.abc import Callable, Mapping
from typing import Literal, Self, TextIO

Style = Literal["bold", "faint", "red", "green", "yellow"]

_CODES: Mapping[Style, int] = {"bold": 1, "faint": 2, "red": 31, "green": 32, "yellow": 33}

CLEAR_LINE = "\r\x1b[K"
"Puts the cursor at the beginning of the line, and clears the line."


def has_colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Returns True if text in `stream` may be coloured: it is a terminal, and the user does not
    forbid it (https://no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def styled(text: str, style: Style) -> str:
    """Returns the text with the codes that a terminal needs to show it in this style."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


BAR_WIDTH = 24
"Characters of the bar."
REDRAW_S = 0.2
"Smallest time between two drawings of the bar, in seconds."


class ProgressBar:
    """Progress of one task that is counted in steps. The bar is drawn on a terminal only. `unit`:
    what is counted, such as `requests`. As a context manager it finishes in any case, so that an
    error message begins on a line of its own."""

    def __init__(
        self, stream: TextIO, unit: str = "", now: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._unit, self._now = stream, unit, now
        self._is_terminal = stream.isatty()
        self._total = self._done = self._done_before = 0
        self._began_s = self._shown_s = now()
        self._is_drawn = False
        "True while the cursor stands behind the bar."

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def start(self, total: int, done: int = 0) -> None:
        """Begins the display. `total`: 0 if it is not known. `done`: steps that were done before;
        they say nothing about the time left."""
        self._total, self._done, self._done_before = total, done, done
        self._began_s = self._now()
        if self._is_terminal:
            self._draw()

    def add(self, count: int = 1) -> None:
        """Adds finished steps. A negative number means steps that must be done again."""
        self._done += count
        self._show()

    def note(self, text: str) -> None:
        """Writes a message in a line of its own, also where there is no terminal."""
        self._stream.write(f"{CLEAR_LINE}{text}\n" if self._is_drawn else f"{text}\n")
        if self._is_drawn:
            self._draw()
        self._stream.flush()

    def finish(self) -> None:
        """Shows the final state, and ends the bar's line."""
        if self._is_drawn:
            self._draw()
            self._is_drawn = False
            self._stream.write("\n")
            self._stream.flush()

    def _show(self) -> None:
        """Shows the present state, if the last time was long enough ago."""
        if self._is_terminal and self._is_due():
            self._draw()

    def _is_due(self) -> bool:
        """Returns True at most once in REDRAW_S."""
        now_s = self._now()
        if now_s - self._shown_s < REDRAW_S:
            return False
        self._shown_s = now_s
        return True

    def _share(self) -> float:
        """Returns the finished part, 0 to 1; 0 if the total is not known."""
        return min(self._done / self._total, 1.0) if self._total else 0.0

    def _state_text(self) -> str:
        """Returns the text behind the bar."""
        return f"{self._share():4.0%} of {self._total} {self._unit}{self._time_left_text()}"

    def _time_left_text(self) -> str:
        """Returns the time left at the mean rate since the start; empty if it is unknown or
        short."""
        done_since = self._done - self._done_before
        if done_since <= 0:
            return ""
        left_s = (self._now() - self._began_s) * (self._total - self._done) / done_since
        return f", {int(left_s) // 60}:{int(left_s) % 60:02d} left" if left_s > 1 else ""

    def _draw(self) -> None:
        filled = round(BAR_WIDTH * self._share())
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        self._stream.write(f"{CLEAR_LINE}[{bar}] {self._state_text()}")
        self._stream.flush()
        self._is_drawn = True
