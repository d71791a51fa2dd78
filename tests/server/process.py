"""Runs `earshot` as a process, without the settings of this machine."""

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from threading import Event, Thread
from typing import IO

import psutil

from tests.server.forked import ForkedProcess, run_earshot
from tests.shared import ROOT

WHISPER = ROOT / "tests" / "fixtures" / "whisper-nano"
TIMEOUT_S = 90.0
"For what takes two or three on an idle machine."

LOADS_HERE: Mapping[str, str] = {
    "EARSHOT_ASR__ENGINE": "faster_whisper",
    "EARSHOT_ASR__OPTIONS__MODEL": str(WHISPER),
}
"A recogniser that every checkout has."


def environment(folder: Path, **settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EARSHOT_")}
    usual = {
        "EARSHOT_WYOMING__PORT": "0",  # there is one 10300, and servers run side by side
        "EARSHOT_TTS__ENGINE": "espeak",  # quick to start; few tests need the default voice
    }
    return {**kept, "XDG_STATE_HOME": str(folder), "PYTHONPATH": str(ROOT), **usual, **settings}


def run(
    folder: Path, *arguments: str, settings: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """Runs one command to its end."""
    return run_earshot(arguments, folder, environment(folder, **(settings or {})), TIMEOUT_S)


@dataclass(slots=True)
class Running:
    """A server process. A thread reads its output, because a full pipe would stop the server."""

    process: ForkedProcess
    output: IO[str]
    "Its standard output and standard error."
    url: str = ""
    said: list[str] = field(default_factory=list)
    _is_ready: Event = field(default_factory=Event)
    _is_back: Event = field(default_factory=Event)
    "Set when it is ready for the second time, or has ended."
    _reader: Thread | None = None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends a signal and returns the exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Waits until it has ended and its output is read; returns the exit code."""
        code = self.process.wait(TIMEOUT_S)
        if self._reader is not None:
            self._reader.join(TIMEOUT_S)
        return code

    def start_reading(self) -> None:
        """Waits until it is ready. Raises AssertionError with its output if it never is."""
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._is_ready.wait(TIMEOUT_S) or not self.url:
            raise AssertionError("\n".join(self.said))

    def ready_again(self) -> None:
        """Waits until a server that was told to restart is ready. Raises AssertionError with its
        output if it never is."""
        if not self._is_back.wait(TIMEOUT_S) or self.process.poll() is not None:
            raise AssertionError("\n".join(self.said))

    def _read(self) -> None:
        for line in self.output:
            self.said.append(line.rstrip())
            if ready := re.search(r"ready in [0-9.]+ s at (\S+)", line):
                if self.url:
                    self._is_back.set()
                self.url = ready[1]
                self._is_ready.set()
        self._is_ready.set()
        self._is_back.set()


@contextmanager
def serving(
    folder: Path,
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    recogniser: Mapping[str, str] = LOADS_HERE,
) -> Iterator[Running]:
    """Runs `earshot serve` on a free port; yields when it is ready, and kills it at the end."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as written:
        env = environment(folder, **recogniser, **(settings or {}))
        process = ForkedProcess(["serve", "--port", "0", *arguments], folder, env, written, written)
    server = Running(process, os.fdopen(reader, encoding="utf-8"))
    try:
        server.start_reading()
        yield server
    finally:
        process.kill()
        server.ended()
        server.output.close()


def workers(server: Running) -> list[psutil.Process]:
    """Returns the processes of the server's models, without the decoder of files."""
    children = psutil.Process(server.process.pid).children()
    return [one for one in children if "engines.runtime.worker.main" in one.cmdline()]
