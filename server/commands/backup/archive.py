"""Format of a backup: a gzipped tar with a manifest and files of fixed names.

An archive says nothing about where its files go, so it cannot write outside the places that
`earshot restore` names.
"""

import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

import msgspec

from core.errors import EarshotError

FORMAT = "earshot-backup"
"Value by which a manifest is recognised as ours."

VERSION = 1
"Version of the format. A newer version of Earshot may write a higher one, which is refused here."

MANIFEST_FILE = "manifest.json"
CONFIG_FILE = "earshot.toml"
DATABASE_FILE = "devices.db"
CERTIFICATE_FILE = "certificate.pem"
CERTIFICATE_KEY_FILE = "certificate-key.pem"
API_KEY_FILE = "api-key"
OWN_TLS_FILE = "tls.pem"

NAMES: Mapping[str, str] = {
    CONFIG_FILE: "the configuration, with the secrets in it",
    API_KEY_FILE: "the API key of the server",
    OWN_TLS_FILE: "the certificate that Earshot made, and its private key",
    CERTIFICATE_FILE: "the certificate that server.tls names",
    CERTIFICATE_KEY_FILE: "its private key",
    DATABASE_FILE: "known devices, digests of keys, stored settings, and kept conversations",
}
"Name of a file in an archive -> description of the file. An archive holds no other names."

MAX_FILE_BYTES = 256 * 2**20
"""Largest file, so that a small archive cannot unpack to more than the memory. The database of a
house has kilobytes."""


class BackupError(EarshotError):
    """Raised when a backup cannot be made or used; the message gives the reason."""

    code = "backup_failed"


class _Manifest(msgspec.Struct, frozen=True):
    """First file of an archive."""

    format: str
    version: int
    made_by: str
    "Version of Earshot that made the archive."
    made: str
    "Time at which it was made, in ISO 8601."
    files: dict[str, str]
    "Name -> SHA-256 of the content, in hexadecimal digits."


@dataclass(frozen=True, slots=True)
class Backup:
    """Content of an archive. Its `repr` names the files and does not show what is in them."""

    files: Mapping[str, bytes]
    made_by: str
    "Version of Earshot that made it."
    made: str
    "Time at which it was made, in ISO 8601."

    def __repr__(self) -> str:
        return f"Backup({', '.join(self.files)}; {self.made_by}, {self.made})"


def pack(files: Mapping[str, bytes], version: str, now: datetime) -> bytes:
    """Returns the archive of these files: name -> content. `version`: version of Earshot. Raises
    BackupError for a file that is too large."""
    for name, data in files.items():
        if len(data) > MAX_FILE_BYTES:
            raise BackupError(f"{name} has {len(data)} bytes; the limit is {MAX_FILE_BYTES}")
    digests = {name: sha256(data).hexdigest() for name, data in files.items()}
    manifest = _Manifest(FORMAT, VERSION, version, now.isoformat(timespec="seconds"), digests)
    members = {MANIFEST_FILE: msgspec.json.format(msgspec.json.encode(manifest)), **files}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), 0o600, int(now.timestamp())
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def unpack(data: bytes) -> Backup:
    """Reads an archive. Raises BackupError if it is not a backup of Earshot, damaged or too new."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|gz") as tar:
            members = _read_members(tar)
            name, manifest_bytes = next(members, ("", b""))
            if name != MANIFEST_FILE:
                raise BackupError("not a backup of Earshot: it does not begin with a manifest")
            manifest = _read_manifest(manifest_bytes)
            files = dict(members)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise BackupError(f"not a backup of Earshot, or damaged: {error}") from error
    if missing := sorted(manifest.files.keys() - files.keys()):
        raise BackupError(f"the backup is damaged: {', '.join(missing)} is missing")
    for name, content in files.items():
        if sha256(content).hexdigest() != manifest.files.get(name):
            raise BackupError(f"the backup is damaged: {name} does not match its digest")
    return Backup(files, manifest.made_by, manifest.made)


def _read_members(tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Yields (name, content) of each file. Raises BackupError for anything that we do not write."""
    seen_names: set[str] = set()
    for member in tar:
        name = member.name
        if name not in NAMES and name != MANIFEST_FILE:
            raise BackupError(f"not a backup of Earshot: it holds {name[:100]!r}")
        if not member.isreg() or name in seen_names:
            raise BackupError(f"not a backup of Earshot: {name} is no plain file, or occurs twice")
        if member.size > MAX_FILE_BYTES:
            raise BackupError(f"{name} has {member.size} bytes; the limit is {MAX_FILE_BYTES}")
        seen_names.add(name)
        content = tar.extractfile(member)
        assert content is not None, "a plain file has content"
        yield name, content.read()


def _read_manifest(data: bytes) -> _Manifest:
    try:
        manifest = msgspec.json.decode(data, type=_Manifest)
    except msgspec.DecodeError as error:
        raise BackupError(f"not a backup of Earshot: its manifest is wrong: {error}") from error
    if manifest.format != FORMAT:
        raise BackupError(f"not a backup of Earshot: its format is {manifest.format[:100]!r}")
    if manifest.version > VERSION:
        raise BackupError(
            f"the backup was made by Earshot {manifest.made_by[:20]} in a newer format"
            f" ({manifest.version}); this version reads up to {VERSION}"
        )
    return manifest
