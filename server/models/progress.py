"""Shows the progress of a download: a bar on a terminal, otherwise a few lines, or events for a
program."""

import time
from collections.abc import Callable
from typing import TextIO

import msgspec
from msgspec import Struct

BAR_WIDTH = 24
"Characters of the bar."
REDRAW_S = 0.2
"Smallest time between two drawings of the bar, or two events, in seconds."
SHOWN_FILE_BYTES = 5_000_000
"Smallest file of several whose progress is shown."
LINE_SHARE = 0.25
"Share of the download after which another line is written, if there is no terminal."


class PullNote(Struct, frozen=True, tag_field="event", tag="note"):
    """A message about the download."""

    text: str


class PullBytes(Struct, frozen=True, tag_field="event", tag="bytes"):
    """How far the download is."""

    done_bytes: int
    total_bytes: int
    "0: the size is not known."
    bytes_per_s: int
    "Mean rate since the start, without what was there before."


class PullDone(Struct, frozen=True, tag_field="event", tag="done"):
    """The end of a download that succeeded."""

    folder: str
    kind: str
    "ct2, checkpoint, voice, embed, rerank or clip."
    is_new: bool
    "False: the model was there already."


class PullFailed(Struct, frozen=True, tag_field="event", tag="failed"):
    """The end of a download that failed."""

    code: str
    message: str


PullEvent = PullNote | PullBytes | PullDone | PullFailed
"One line of `earshot models pull --json`."


class DownloadProgress:
    """Progress of one download, written to `stream`."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._now = stream, now
        self._is_terminal = stream.isatty()
        self._total_bytes = self._done_bytes = self._resumed_bytes = 0
        self._began_s = self._shown_s = now()
        self._next_share = LINE_SHARE

    def start(self, total_bytes: int, done_bytes: int) -> None:
        """Begins the display. `total_bytes` is 0 if the hub does not say the size."""
        self._total_bytes, self._done_bytes, self._resumed_bytes = (
            total_bytes,
            done_bytes,
            done_bytes,
        )
        self._began_s = self._now()
        if done_bytes:
            self.note(f"{_megabytes(done_bytes)} were downloaded before")
        if total_bytes:
            self._next_share = (done_bytes / total_bytes // LINE_SHARE + 1) * LINE_SHARE

    def add(self, count_bytes: int) -> None:
        """Adds received bytes. Negative: bytes were dropped and are fetched again."""
        self._done_bytes += count_bytes
        self._show()

    def file_bytes(self, done_bytes: int, total_bytes: int) -> None:
        """Shows how far one of several files is; its first call has no bytes. A small file is not
        shown: it takes no time, and there are many."""
        if total_bytes < SHOWN_FILE_BYTES:
            return
        if done_bytes == 0:
            self.start(total_bytes, 0)
            return
        self.add(done_bytes - self._done_bytes)
        if done_bytes == total_bytes:
            self.finish()

    def note(self, text: str) -> None:
        """Shows a message in a line of its own."""
        self._write_line(text)

    def finish(self) -> None:
        """Shows the final state."""
        if self._is_terminal:
            self._draw_bar()
            self._stream.write("\n")
            self._stream.flush()
        else:
            self._write_line(self._state_text())

    def _show(self) -> None:
        """Shows the present state, if the last time was long enough ago."""
        if self._is_terminal:
            if self._is_due():
                self._draw_bar()
        elif self._total_bytes and self._next_share <= self._done_bytes / self._total_bytes < 1:
            self._next_share += LINE_SHARE
            self._write_line(self._state_text())

    def _is_due(self) -> bool:
        """True once in REDRAW_S."""
        now_s = self._now()
        if now_s - self._shown_s < REDRAW_S:
            return False
        self._shown_s = now_s
        return True

    def _rate_bytes_per_s(self) -> float:
        elapsed_s = max(self._now() - self._began_s, 1e-3)
        return max(self._done_bytes - self._resumed_bytes, 0) / elapsed_s

    def _state_text(self) -> str:
        rate_bytes_per_s = self._rate_bytes_per_s()
        if not self._total_bytes:
            return f"{_megabytes(self._done_bytes)}, {rate_bytes_per_s / 1e6:.1f} MB/s"
        share = min(self._done_bytes / self._total_bytes, 1.0)
        state = (
            f"{share:4.0%} of {_megabytes(self._total_bytes)}, {rate_bytes_per_s / 1e6:.1f} MB/s"
        )
        remaining_s = (
            (self._total_bytes - self._done_bytes) / rate_bytes_per_s if rate_bytes_per_s else 0
        )
        if remaining_s > 1:
            state += f", {int(remaining_s) // 60}:{int(remaining_s) % 60:02d} left"
        return state

    def _draw_bar(self) -> None:
        filled = (
            round(BAR_WIDTH * min(self._done_bytes / self._total_bytes, 1.0))
            if self._total_bytes
            else 0
        )
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        self._stream.write(f"\r\x1b[K[{bar}] {self._state_text()}")
        self._stream.flush()

    def _write_line(self, text: str) -> None:
        start = "\r\x1b[K" if self._is_terminal else ""
        self._stream.write(f"{start}  {text}\n")
        self._stream.flush()


class ProgressEvents(DownloadProgress):
    """Progress of one download as events, one JSON object per line."""

    def start(self, total_bytes: int, done_bytes: int) -> None:
        """Sends the size at once: the first bytes may be slow."""
        super().start(total_bytes, done_bytes)
        self._send_state()

    def note(self, text: str) -> None:
        """Sends a message."""
        self.send(PullNote(text))

    def finish(self) -> None:
        """Sends the final state."""
        self._send_state()

    def send(self, event: PullEvent) -> None:
        """Writes one event. The reader may wait for it, so it is not buffered."""
        self._stream.write(msgspec.json.encode(event).decode() + "\n")
        self._stream.flush()

    def _show(self) -> None:
        if self._is_due():
            self._send_state()

    def _send_state(self) -> None:
        rate_bytes_per_s = round(self._rate_bytes_per_s())
        self.send(PullBytes(self._done_bytes, self._total_bytes, rate_bytes_per_s))


def _megabytes(count_bytes: int) -> str:
    return f"{count_bytes / 1e6:.0f} MB" if count_bytes >= 1e6 else f"{count_bytes / 1e3:.0f} kB"
