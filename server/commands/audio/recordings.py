"""Finds recordings in folders and archives, one after the other, without unpacking an archive."""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from core.errors import ConfigError

SUFFIXES = frozenset(
    (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".mp4", ".webm", ".aac", ".aiff", ".amr")
)
"""Endings of files that count as recordings in folders and archives, which may also hold texts and
tables. A file that is named on the command line is always one."""

MAX_FILE_BYTES = 1024 * 1024 * 1024
"Largest recording: five hours of 16-bit sound at 24 kHz. One of an archive is read into memory."


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording that was found."""

    name: PurePosixPath
    "Path under the folder for the results, without a part that leads out of it."
    source: Path | bytes
    "The file, or its content if it lies in an archive."


@dataclass(frozen=True, slots=True)
class UnreadableInput:
    """Something that should be a recording, but cannot be read."""

    name: str
    "Path as the user would look for it."
    reason: str


def find_recordings(inputs: Iterable[Path]) -> Iterator[Recording | UnreadableInput]:
    """Yields the recordings of files, folders and archives, in the order of their names.

    A damaged archive gives what can be read of it, and then its problem. Raises ConfigError for an
    input that does not exist.
    """
    for path in inputs:
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.suffix.lower() in SUFFIXES and file.is_file():
                    yield Recording(PurePosixPath(*file.relative_to(path).parts), file)
        elif not path.is_file():
            raise ConfigError(f"{path}: no such file or folder")
        elif zipfile.is_zipfile(path):
            yield from _of_archive(path, _zip_members(path))
        elif tarfile.is_tarfile(path):
            yield from _of_archive(path, _tar_members(path))
        else:
            yield Recording(PurePosixPath(path.name), path)


Member = tuple[str, int, "MemberReader"]
"Name, size in bytes, and what reads it."


class MemberReader:
    """Reads one member of an archive."""

    def __init__(
        self,
        archive: zipfile.ZipFile | tarfile.TarFile,
        member: zipfile.ZipInfo | tarfile.TarInfo,
    ) -> None:
        self._archive, self._member = archive, member

    def read(self) -> bytes:
        """Returns the content. Raises OSError, and the errors of the archive's format."""
        if isinstance(self._archive, zipfile.ZipFile):
            assert isinstance(self._member, zipfile.ZipInfo)
            return self._archive.read(self._member)
        assert isinstance(self._member, tarfile.TarInfo)
        file = self._archive.extractfile(self._member)
        return file.read() if file else b""


_BROKEN = (
    *(OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile),
    *(zlib.error, RuntimeError),
)
"""Errors of archives that are damaged or cut off. RuntimeError: encrypted, or compressed in a way
that Python does not know."""


def _zip_members(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                yield member.filename, member.file_size, MemberReader(archive, member)


def _tar_members(path: Path) -> Iterator[Member]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile():  # a link could lead out of the archive
                yield member.name, member.size, MemberReader(archive, member)


def _of_archive(path: Path, members: Iterator[Member]) -> Iterator[Recording | UnreadableInput]:
    try:
        for name, size_bytes, reader in members:
            place = PurePosixPath(name)
            if place.suffix.lower() not in SUFFIXES:
                continue
            full_name = f"{path}:{name}"
            if place.is_absolute() or ".." in place.parts or "\\" in name:
                yield UnreadableInput(full_name, "its path leads out of the archive")
            elif size_bytes > MAX_FILE_BYTES:
                most = MAX_FILE_BYTES // 2**20
                yield UnreadableInput(full_name, f"{size_bytes} bytes; allowed: {most} MiB")
            else:
                yield _read(full_name, PurePosixPath(path.name) / place, reader)
    except _BROKEN as error:
        yield UnreadableInput(str(path), f"the archive is damaged: {error}")


def _read(full_name: str, name: PurePosixPath, reader: MemberReader) -> Recording | UnreadableInput:
    try:
        return Recording(name, reader.read())
    except _BROKEN as error:
        return UnreadableInput(full_name, f"cannot be unpacked: {error}")
