"""Copies a SQLite database while a server may write to it, and checks copies before they are
used."""

import sqlite3
from contextlib import closing
from pathlib import Path

from server.commands.backup.archive import BackupError

ROLLBACK_MODE = bytes((1, 1))
"""Bytes 18 and 19 of a database file without a write-ahead log. SQLite opens a copy in memory only
if it has these bytes. The server turns the log on again when it opens the file."""


def copy_of(file: Path) -> bytes:
    """Returns the database as one file, as it is at this moment. A server may write meanwhile.
    Raises BackupError."""
    try:
        with (
            closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(":memory:")) as copy,
        ):
            source.backup(copy)
            image = copy.serialize()
    except sqlite3.Error as error:
        raise BackupError(f"{file}: the database cannot be read: {error}") from error
    return image[:18] + ROLLBACK_MODE + image[20:]


def check(data: bytes) -> None:
    """Raises BackupError unless the bytes are an undamaged SQLite database."""
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(data)
            (verdict,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        raise BackupError(f"the database in the backup is damaged: {error}") from error
    if verdict != "ok":
        raise BackupError(f"the database in the backup is damaged: {verdict}")


def is_open_elsewhere(file: Path) -> bool:
    """Returns True if another process has the database open, as a running server has all the
    time. A file that is no database counts as not open: a backup may have to replace it."""
    if not file.exists():
        return False
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as database:
        try:
            # In WAL mode each connection shares a lock on the file until it is closed, so that
            # this one gets the exclusive lock only if there is no other.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        except sqlite3.DatabaseError:
            return False
        database.execute("ROLLBACK")
        return False
