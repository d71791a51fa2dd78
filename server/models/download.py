"""Downloads files of a hub into a folder, continues interrupted files, and checks all of them."""

import hashlib
import shutil
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

from server.models.errors import HubUnreachable, ModelsError
from server.models.hub import ATTEMPTS, Hub, HubFile, reason
from server.models.progress import DownloadProgress

BLOCK_BYTES = 256 * 1024
"Largest number of bytes read at once."

SPARE_BYTES = 64 * 2**20
"Free space in bytes that must remain on the disk."


def fetch(
    hub: Hub,
    files: Sequence[HubFile],
    folder: Path,
    progress: DownloadProgress,
) -> None:
    """Downloads the files into `folder` under their local paths; correct files that exist stay.
    Raises ModelsError; then the finished files and a part of the next one remain for another try.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing_files = [file for file in files if not _is_complete(file, folder)]
    present_bytes = sum(
        (folder / file.local_path).stat().st_size for file in files if file not in missing_files
    )
    parts = {file: _part_path(file, folder) for file in missing_files}
    _check_space(missing_files, parts, folder)
    progress.start(
        sum(file.size_bytes or 0 for file in files),
        present_bytes + sum(map(_size_bytes, parts.values())),
    )
    for file, part in parts.items():
        part.parent.mkdir(parents=True, exist_ok=True)
        _fetch_one(hub, file, part, progress)
        _check_content(file, part)
        part.replace(folder / file.local_path)
    progress.finish()


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _part_path(file: HubFile, folder: Path) -> Path:
    """Returns the path of a partial file. It contains the content's hash: a file that changed on
    the hub is never continued."""
    return folder / f"{file.local_path}.{file.identity[:16]}.part"


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_complete(file: HubFile, folder: Path) -> bool:
    path = folder / file.local_path
    return path.is_file() and bool(file.sha256 or file.git_sha1) and _mismatch(file, path) == ""


def _check_space(
    missing_files: Sequence[HubFile], parts: dict[HubFile, Path], folder: Path
) -> None:
    check_free_space(
        sum(max(0, (file.size_bytes or 0) - _size_bytes(parts[file])) for file in missing_files),
        folder,
    )


def check_free_space(missing_bytes: int, folder: Path) -> None:
    """Raises ModelsError if the disk of `folder` has less than `missing_bytes` and SPARE_BYTES
    free."""
    free_bytes = shutil.disk_usage(folder).free
    if missing_bytes and missing_bytes + SPARE_BYTES > free_bytes:
        raise ModelsError(
            f"not enough space in {folder.parent}: {missing_bytes / 1e6:.0f} MB are needed and"
            f" {free_bytes / 1e6:.0f} MB are free"
        )


def _fetch_one(hub: Hub, file: HubFile, part: Path, progress: DownloadProgress) -> None:
    """Downloads one file into `part`. After a broken connection it continues where the file ends,
    until ATTEMPTS in a row bring no byte. Raises HubUnreachable."""
    failures = 0
    while True:
        part_bytes = _size_bytes(part)
        try:
            if file.size_bytes is None or part_bytes < file.size_bytes or not part.exists():
                _download_rest(hub, file, part, progress)
            return
        except HubUnreachable as error:
            failures = 1 if _size_bytes(part) > part_bytes else failures + 1
            if failures >= ATTEMPTS:
                raise
            progress.note(f"{error}; trying again")
            hub.sleep(2.0 ** (failures - 1))


def _download_rest(hub: Hub, file: HubFile, part: Path, progress: DownloadProgress) -> None:
    """Downloads the missing rest of a file and appends it to the part."""
    start = _size_bytes(part)
    with hub.open(file, start) as response:
        if start and response.status != 206:  # the server ignored the range and sends everything
            progress.add(-start)
            start = 0
        expected = file.size_bytes
        if expected is None and response.length is not None:
            expected = start + response.length
        with part.open("r+b" if start else "wb") as part_file:
            part_file.seek(start)
            received = start
            # An answer longer than listed, such as a network's login page, is not read to its end.
            while expected is None or received < expected:
                if not (block := _read_block(response, hub, file)):
                    break
                received += part_file.write(block)
                progress.add(len(block))
    if expected is not None and received < expected:
        raise HubUnreachable(
            f"{hub.endpoint}: {file.path} ended after {received} of {expected} bytes"
        )


def _read_block(response: Any, hub: Hub, file: HubFile) -> bytes:
    try:
        block: bytes = response.read1(BLOCK_BYTES)
    except TimeoutError as error:
        silence = f"no byte for {hub.stall_s:g} s"
        raise HubUnreachable(f"{hub.endpoint}: {file.path}: {silence}") from error
    except (OSError, HTTPException) as error:
        raise HubUnreachable(f"{hub.endpoint}: {file.path}: {reason(error)}") from error
    return block


def _check_content(file: HubFile, part: Path) -> None:
    """Deletes a part with wrong content, because continuing it can never give the right file.
    Raises ModelsError."""
    if mismatch := _mismatch(file, part):
        part.unlink()
        raise ModelsError(
            f"{file.repository}/{file.path} was damaged during download: {mismatch}; pull it again"
        )


def _mismatch(file: HubFile, path: Path) -> str:
    """Returns how a file differs from the hub's description; empty if it does not."""
    size_bytes = path.stat().st_size
    if file.size_bytes is not None and size_bytes != file.size_bytes:
        return f"{size_bytes} bytes instead of {file.size_bytes}"
    if file.sha256:
        kind, expected, actual = "sha256", file.sha256, sha256(path)
    elif file.git_sha1:
        content = path.read_bytes()  # git holds only small files
        blob = b"blob %d\0" % len(content) + content
        kind, expected = "git hash", file.git_sha1
        actual = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
    else:
        return ""
    return "" if actual == expected else f"{kind} {actual[:16]}… instead of {expected[:16]}…"
