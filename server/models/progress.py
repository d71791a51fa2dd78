"""Shows the progress of a download: a bar on a terminal, otherwise a few lines."""

import time
from collections.abc import Callable
from typing import TextIO

BAR_WIDTH = 24
REDRAW_S = 0.2
"Smallest time between two drawings of the bar, in seconds."
LINE_EVERY = 0.25
"Without a terminal one line is written per quarter of the download."


class DownloadProgress:
    """Progress of one download, written to `out`."""

    def __init__(self, out: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._out, self._now = out, now
        self._is_terminal = out.isatty()
        self._total = self._done = self._resumed = 0
        self._began_s = self._drawn_s = now()
        self._next_share = LINE_EVERY

    def start(self, total_bytes: int, done_bytes: int) -> None:
        """Begins the display. `total_bytes` is 0 if the hub does not say the size."""
        self._total, self._done, self._resumed = total_bytes, done_bytes, done_bytes
        self._began_s = self._now()
        if done_bytes:
            self._line(f"{_megabytes(done_bytes)} were downloaded before")
        if total_bytes:
            self._next_share = (done_bytes / total_bytes // LINE_EVERY + 1) * LINE_EVERY

    def add(self, count: int) -> None:
        """Adds received bytes. Negative: bytes were dropped and are fetched again."""
        self._done += count
        if self._is_terminal:
            if self._now() - self._drawn_s >= REDRAW_S:
                self._draw()
        elif self._total and self._next_share <= self._done / self._total < 1:
            self._next_share += LINE_EVERY
            self._line(self._state())

    def note(self, text: str) -> None:
        self._line(text)

    def finish(self) -> None:
        """Shows the final state."""
        if self._is_terminal:
            self._draw()
            self._out.write("\n")
            self._out.flush()
        else:
            self._line(self._state())

    def _state(self) -> str:
        elapsed_s = max(self._now() - self._began_s, 1e-3)
        rate = max(self._done - self._resumed, 0) / elapsed_s
        if not self._total:
            return f"{_megabytes(self._done)}, {rate / 1e6:.1f} MB/s"
        share = min(self._done / self._total, 1.0)
        state = f"{share:4.0%} of {_megabytes(self._total)}, {rate / 1e6:.1f} MB/s"
        left_s = (self._total - self._done) / rate if rate else 0
        if left_s > 1:
            state += f", {int(left_s) // 60}:{int(left_s) % 60:02d} left"
        return state

    def _draw(self) -> None:
        self._drawn_s = self._now()
        filled = round(BAR_WIDTH * min(self._done / self._total, 1.0)) if self._total else 0
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        self._out.write(f"\r\x1b[K[{bar}] {self._state()}")
        self._out.flush()

    def _line(self, text: str) -> None:
        start = "\r\x1b[K" if self._is_terminal else ""
        self._out.write(f"{start}  {text}\n")
        self._out.flush()


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
