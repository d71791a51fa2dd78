"""The format of a backup: what is packed comes back, and anything else is refused."""

import gzip
import io
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from server.commands.backup import archive
from server.commands.backup.archive import BackupError, pack, unpack

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
FILES = {"earshot.toml": b"language = 'de'\n", "api-key": b"k" * 43, "devices.db": bytes(9000)}
WHOLE = pack(FILES, "0.2.0", NOW)


def _tar(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    """An archive of these members; `kind` is the type of the last."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for number, (name, data) in enumerate(members, 1):
            member = tarfile.TarInfo(name)
            if number == len(members):
                member.type = kind
            member.size, member.linkname = len(data), "/etc/passwd"
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def _members() -> Sequence[tuple[str, bytes]]:
    """The members of a good archive."""
    with tarfile.open(fileobj=io.BytesIO(WHOLE)) as tar:
        found = [(one.name, tar.extractfile(one)) for one in tar]
        return [(name, content.read()) for name, content in found if content is not None]


MANIFEST, *CONTENT = _members()


def test_what_is_packed_comes_back() -> None:
    saved = unpack(WHOLE)
    assert saved.files == FILES
    assert (saved.made_by, saved.made) == ("0.2.0", "2026-11-24T12:00:00+00:00")
    assert "kkk" not in repr(saved)


def test_members_are_readable_by_their_owner_only() -> None:
    with tarfile.open(fileobj=io.BytesIO(WHOLE)) as tar:
        assert {member.mode for member in tar} == {0o600}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a backup of Earshot"),
        (b"no archive", "not a backup of Earshot, or damaged"),
        (gzip.compress(b"no tar"), "not a backup of Earshot, or damaged"),
        (WHOLE[: len(WHOLE) // 2], "damaged"),
        (_tar(("readme", b"")), "it holds 'readme'"),
        (_tar(("api-key", b"k")), "does not begin with a manifest"),
        (_tar(("manifest.json", b"{}")), "its manifest is wrong"),
        (_tar(MANIFEST), "api-key, devices.db, earshot.toml is missing"),
        (_tar(MANIFEST, *CONTENT, ("../../etc/cron.d/x", b"")), r"it holds '\.\./\.\./etc/cron"),
        (_tar(MANIFEST, *CONTENT, ("/etc/passwd", b"")), "it holds '/etc/passwd'"),
        (_tar(MANIFEST, *CONTENT, ("tls.pem", b"")), "tls.pem does not match its digest"),
        (
            _tar(MANIFEST, *CONTENT[1:], ("earshot.toml", b"x")),
            "earshot.toml does not match its digest",
        ),
        (_tar(MANIFEST, *CONTENT, ("api-key", b"k" * 43)), "api-key is no plain file, or occurs"),
        (_tar(MANIFEST, ("api-key", b""), kind=tarfile.SYMTYPE), "api-key is no plain file"),
        (_tar(MANIFEST, ("api-key", b""), kind=tarfile.LNKTYPE), "api-key is no plain file"),
        (_tar(MANIFEST, ("api-key", b""), kind=tarfile.FIFOTYPE), "api-key is no plain file"),
    ],
)
def test_a_foreign_or_damaged_archive_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(BackupError, match=words):
        unpack(data)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"earshot-backup"', b'"otherthing-bak"', "its format is 'otherthing-bak'"),
        (b'"version": 1', b'"version": 2', r"newer format \(2\)"),
    ],
)
def test_another_format_is_refused(old: bytes, new: bytes, words: str) -> None:
    changed = MANIFEST[1].replace(old, new)
    assert changed != MANIFEST[1]
    with pytest.raises(BackupError, match=words):
        unpack(_tar(("manifest.json", changed), *CONTENT))


def test_a_file_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", 8999)
    for call in (lambda: pack(FILES, "0.2.0", NOW), lambda: unpack(WHOLE)):
        with pytest.raises(BackupError, match=r"devices\.db has 9000 bytes"):
            call()
