"""Real clock and trace file, as `core.ports` declares them."""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from core.errors import ConfigError
from core.private_files import make_private

logger = logging.getLogger(__name__)


class SystemClock:
    """Implements `core.ports.Clock` with the system's clocks."""

    def now(self) -> float:
        """Returns monotonic time in seconds."""
        return time.monotonic()

    def wall(self) -> datetime:
        """Returns the date and time in the local time zone."""
        return datetime.now().astimezone()


class JsonlTraceSink:
    """Writes the trace as one JSON object per line. Implements `core.ports.TraceSink`. Each line
    goes out in one write, so that a crash leaves no partial line."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, record: Mapping[str, object]) -> None:
        """Writes one record. Values that JSON lacks become text."""
        self._stream.write(msgspec.json.encode(record, enc_hook=str) + b"\n")


@contextmanager
def open_trace(path: str) -> Iterator[JsonlTraceSink | None]:
    """Opens the file for appending, readable by its owner only; yields None for an empty path.
    Raises ConfigError if the file cannot be opened."""
    if not path:
        yield None
        return
    if change := make_private(Path(path).expanduser(), "config.trace.path"):
        logger.warning("! trace: %s", change)
    try:
        descriptor = os.open(Path(path).expanduser(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"config.trace.path: {path}: {error.strerror or error}") from error
    with os.fdopen(descriptor, "wb", buffering=0) as stream:
        yield JsonlTraceSink(stream)
