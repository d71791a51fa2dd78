"""Shows the progress of a download or a conversion: a bar on a terminal, otherwise a few lines, or
events for a program."""

import time
from collections.abc import Callable
from typing import TextIO

import msgspec
from msgspec import Struct

from core.terminal import ProgressBar

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


class DownloadProgress(ProgressBar):
    """Progress of one download, written to `stream`. Without a terminal it is a few lines."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, now=now)
        self._next_share = LINE_SHARE

    def start(self, total: int, done: int = 0) -> None:
        """Begins the display. `total` is 0 if the hub does not say the size."""
        if done:
            self.note(f"{_megabytes(done)} were downloaded before")
        if total:
            self._next_share = (done / total // LINE_SHARE + 1) * LINE_SHARE
        super().start(total, done)

    def file_bytes(self, done_bytes: int, total_bytes: int) -> None:
        """Shows how far one of several files is; its first call has no bytes. A small file is not
        shown: it takes no time, and there are many."""
        if total_bytes < SHOWN_FILE_BYTES:
            return
        if done_bytes == 0:
            self.start(total_bytes)
            return
        self.add(done_bytes - self._done)
        if done_bytes == total_bytes:
            self.finish()

    def note(self, text: str) -> None:
        """Shows a message in an indented line of its own."""
        super().note(f"  {text}")

    def finish(self) -> None:
        """Shows the final state."""
        if self._is_terminal:
            super().finish()
        else:
            self.note(self._state_text())

    def _show(self) -> None:
        if self._is_terminal:
            super()._show()
        elif self._total and self._next_share <= self._done / self._total < 1:
            self._next_share += LINE_SHARE
            self.note(self._state_text())

    def _rate_bytes_per_s(self) -> float:
        elapsed_s = max(self._now() - self._began_s, 1e-3)
        return max(self._done - self._done_before, 0) / elapsed_s

    def _state_text(self) -> str:
        rate = f"{self._rate_bytes_per_s() / 1e6:.1f} MB/s"
        if not self._total:
            return f"{_megabytes(self._done)}, {rate}"
        size = _megabytes(self._total)
        return f"{self._share():4.0%} of {size}, {rate}{self._time_left_text()}"


class ProgressEvents(DownloadProgress):
    """Progress of one download as events, one JSON object per line."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, now)
        self._is_terminal = False  # no bar between the events, even where a person reads them

    def start(self, total: int, done: int = 0) -> None:
        """Sends the size at once: the first bytes may be slow."""
        super().start(total, done)
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
        self.send(PullBytes(self._done, self._total, rate_bytes_per_s))


def _megabytes(count_bytes: int) -> str:
    return f"{count_bytes / 1e6:.0f} MB" if count_bytes >= 1e6 else f"{count_bytes / 1e3:.0f} kB"
