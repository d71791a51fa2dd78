"""Firmware images that devices fetch: a folder of `VERSION/BOARD.bin`, filled by the operator.

Names come from requests, so they must have a form that cannot leave the folder. Links are not
followed either.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG

from core.errors import NotFound, RequestError
from core.tasks import run_in_thread

logger = logging.getLogger(__name__)

SUFFIX = ".bin"

MAX_NAME_CHARS = 64

MAX_LISTED = 1000
"Limit of the files that are listed: a longer list is of no use, and every file needs a checksum."

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_RELEASE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,5}")
_NUMBERS = re.compile(r"[0-9]+")
_PARTS = re.compile(r"[0-9]+|[^0-9.]+")
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FirmwareFile:
    """One firmware image."""

    version: str
    board: str
    path: Path
    size_bytes: int
    sha256: str
    "Hex digits, lower case."


class FirmwareFolder:
    """Folder of firmware images. Every method reads the disk, so call it in a thread. `root` need
    not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._digests: dict[tuple[Path, int, int], str] = {}
        """Checksums by path, size and time of change. They are kept, because computing one takes 10
        ms for 4 MB."""

    def find(self, version: str, board: str) -> FirmwareFile:
        """Returns an image. Raises RequestError invalid_value for a malformed name, and
        NotFound."""
        check_name("version", version)
        check_name("platform", board)
        found = self._image(version, board)
        if found is None:
            raise NotFound(f"there is no firmware {version} for {board}", code="firmware_not_found")
        return found

    def all(self) -> Sequence[FirmwareFile]:
        """Returns all images, the newest version first."""
        found: list[FirmwareFile] = []
        for version, board in self._image_names():
            firmware = self._image(version, board) if len(found) < MAX_LISTED else None
            if firmware is not None:
                found.append(firmware)
        return sorted(
            found, key=lambda image: (version_key(image.version), image.board), reverse=True
        )

    def for_board(self, board: str) -> Sequence[FirmwareFile]:
        """Returns the images for this board, the newest version first."""
        return [image for image in self.all() if image.board == board]

    def releases(self, board: str) -> Sequence[FirmwareFile]:
        """Returns the releases for this board, the newest first. Pre-releases and versions that are
        no number are left out."""
        return [image for image in self.for_board(board) if is_release(image.version)]

    def newest(self, board: str) -> FirmwareFile | None:
        """Returns the newest release, or the newest image if there is no release; None: there is no
        image."""
        return next(iter(self.releases(board) or self.for_board(board)), None)

    def place(self, board: str) -> str:
        """Returns the path for an image for this board, as a text for people."""
        return str(self.root / "VERSION" / f"{board or 'BOARD'}{SUFFIX}")

    def delete(self, version: str, board: str) -> None:
        """Deletes an image. Raises RequestError invalid_value, and NotFound."""
        path = self.find(version, board).path
        path.unlink(missing_ok=True)
        if not any(path.parent.iterdir()):
            path.parent.rmdir()

    def _image_names(self) -> Iterator[tuple[str, str]]:
        if not self.root.is_dir():
            return
        for folder in sorted(self.root.iterdir()):
            if folder.is_dir() and _NAME.fullmatch(folder.name):
                for file in sorted(folder.glob(f"*{SUFFIX}")):
                    if _NAME.fullmatch(file.name):
                        yield folder.name, file.name.removesuffix(SUFFIX)

    def _image(self, version: str, board: str) -> FirmwareFile | None:
        path = self.root / version / f"{board}{SUFFIX}"
        if path.parent.is_symlink():
            return None
        try:
            found = path.lstat()
        except OSError:
            return None
        if not S_ISREG(found.st_mode):
            return None
        key = (path, found.st_size, found.st_mtime_ns)
        digest = self._digests.get(key)
        if digest is None:
            digest = _sha256(path)
            others = {
                other: old_digest for other, old_digest in self._digests.items() if other[0] != path
            }
            # several threads read it: it is replaced, never changed
            self._digests = {**others, key: digest}
        return FirmwareFile(
            version=version,
            board=board,
            path=path,
            size_bytes=found.st_size,
            sha256=digest,
        )


async def image_for(
    folder: FirmwareFolder, board: str, wanted: str, param: str = "firmware"
) -> FirmwareFile | None:
    """Returns the image of a version, or None. wanted: a version, or empty for the newest.

    Raises RequestError invalid_value for a malformed version, and firmware_url_refused for a URL:
    images are not signed, so a client that could choose their source would control the device.
    """
    if "://" in wanted:
        raise RequestError(
            f"firmware comes from this server only; put it into {folder.place(board)}",
            code="firmware_url_refused",
            param=param,
        )
    if not wanted:
        return await run_in_thread(folder.newest, board)
    try:
        return await run_in_thread(folder.find, wanted, board)
    except NotFound:
        return None


def check_name(param: str, name: str) -> str:
    """Returns `name` if it is a valid name of a version, board or file. Raises RequestError."""
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name) or ".." in name:
        logger.warning("! refused a %s of %d characters that is not a valid name", param, len(name))
        raise RequestError(
            f"{param} must be 1 to {MAX_NAME_CHARS} letters, digits, . _ + -, without two dots in"
            " a row",
            code="invalid_value",
            param=param,
        )
    return name


def is_release(version: str) -> bool:
    """Returns True for numbers with dots between them and nothing else."""
    return _RELEASE.fullmatch(version) is not None


VersionKey = tuple[tuple[int, ...], bool, tuple[tuple[bool, int, str], ...]]


def version_key(version: str) -> VersionKey:
    """Returns a sort key for versions. From old to new: `0.9`, `0.10-rc.9`, `0.10-rc.10`, `0.10`.

    A version without a number (WAS's `local`) is the oldest. Text after a `+` is ignored.
    """
    release, _, candidate = version.partition("+")[0].partition("-")
    numbers = tuple(int(digits[:9]) for digits in _NUMBERS.findall(release))
    return numbers, not candidate, tuple(map(_part_key, _PARTS.findall(candidate)))


def _part_key(part: str) -> tuple[bool, int, str]:
    """Sorts numbers by value, and before words (semver.org, 11.4)."""
    return (False, int(part[:9]), "") if part[0] in "0123456789" else (True, 0, part)


def _sha256(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
