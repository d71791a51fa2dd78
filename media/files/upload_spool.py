"""Spools uploads to unnamed temporary files for a decoder, with limits for each upload and for
all."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from core.access.limits import CapacityLimit
from core.errors import OverloadedError, PayloadTooLarge
from core.tasks import run_in_thread

BLOCK_BYTES = 256 * 1024
"""Bytes that are gathered in memory before a thread writes them. That means fewer thread switches,
and the event loop never waits for a disk."""

RETRY_AFTER_S = 5
"Seconds after which a refused client should try again."


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """Limits for uploads."""

    max_bytes: int = 100 * 1024 * 1024
    "Largest upload: three hours of 64 kbit/s speech, or 50 minutes of 16-bit 16 kHz WAV."
    max_total_bytes: int = 1024 * 1024 * 1024
    "Largest size of all uploads together. A further one gets OverloadedError."
    max_uploads: int = 64
    "Largest number of uploads at once, because each holds a file handle."


class UploadSpools:
    """All uploads of the server, which are limited together.

    Example:
        with spools.open() as spool:
            await spool.write(data)
            file = await spool.file()       # from its start; gone after the body
    """

    def __init__(self, limits: SpoolLimits | None = None, folder: Path | None = None) -> None:
        """Creates the spools. `folder`: for the temporary files; None: the system's default."""
        self.limits = limits or SpoolLimits()
        self._folder = folder
        self._places = CapacityLimit(
            self.limits.max_uploads,
            "{limit} uploads are under way, the limit",
            retry_after_s=RETRY_AFTER_S,
        )
        self._used_bytes = 0

    @property
    def count(self) -> int:
        """Number of uploads that are not freed yet."""
        return self._places.taken

    @property
    def used_bytes(self) -> int:
        """Size of all present uploads together."""
        return self._used_bytes

    @contextmanager
    def open(self) -> Iterator["UploadSpool"]:
        """Opens an empty upload; its file is deleted after the body. Raises OverloadedError."""
        with self._places.take(), TemporaryFile(dir=self._folder, buffering=0) as file:
            spool = UploadSpool(file, self.limits.max_bytes, self._reserve)
            try:
                yield spool
            finally:
                self._used_bytes -= spool.size_bytes

    def _reserve(self, size_bytes: int) -> None:
        """Takes space of all uploads together. Raises OverloadedError if there is too little."""
        limit = self.limits.max_total_bytes
        if self._used_bytes + size_bytes > limit:
            raise _full(f"uploads hold {self._used_bytes} of {limit} bytes")
        self._used_bytes += size_bytes


class UploadSpool:
    """One upload: `write` its bytes, then read it as a file. Only one task may write to it."""

    def __init__(self, file: BinaryIO, max_bytes: int, reserve: Callable[[int], None]) -> None:
        self._file, self._max_bytes, self._reserve = file, max_bytes, reserve
        self._waiting = bytearray()
        self.size_bytes = 0

    async def write(self, data: bytes) -> None:
        """Appends data. Raises PayloadTooLarge (audio_too_large), and OverloadedError when there is
        no room for it now."""
        size_bytes = self.size_bytes + len(data)
        if size_bytes > self._max_bytes:
            raise PayloadTooLarge(
                f"an upload of more than {self._max_bytes} bytes, the limit",
                code="audio_too_large",
                param="file",
            )
        self._reserve(len(data))
        self.size_bytes = size_bytes
        self._waiting += data
        if len(self._waiting) >= BLOCK_BYTES:
            await self._flush()

    async def file(self) -> BinaryIO:
        """Returns the file with everything written so far, at its start. It is valid until the
        spool closes."""
        await self._flush()
        self._file.seek(0)
        return self._file

    async def _flush(self) -> None:
        data, self._waiting = self._waiting, bytearray()
        try:
            await run_in_thread(_write_all, self._file, data)
        except OSError as exc:
            raise _full(f"the server's disk cannot store more ({exc.strerror})") from exc


def _write_all(file: BinaryIO, data: bytearray) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _full(why: str) -> OverloadedError:
    return OverloadedError(why, retry_after_s=RETRY_AFTER_S)
