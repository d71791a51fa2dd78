"""`earshot backup FILE` and `earshot restore FILE`."""

import argparse
import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from devices.registry.database import SQLITE_SIDE_FILES, engine_of
from server.commands.backup.archive import (
    API_KEY_FILE,
    CERTIFICATE_FILE,
    CERTIFICATE_KEY_FILE,
    CONFIG_FILE,
    DATABASE_FILE,
    NAMES,
    OWN_TLS_FILE,
    Backup,
    BackupError,
    pack,
    unpack,
)
from server.commands.exit_codes import ExitCode
from server.compose.devices import database_url
from server.config import Config
from server.config.load import DEFAULT_FILE, EffectiveConfig, find_file, load
from server.runtime.state_dir import KEY_FILE, TLS_FILE, open_folder, write_private
from server.version import product_version

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


PRIVACY_WARNING = "The archive holds keys and passwords. Whoever has it can use your server."

DATABASE_SERVER_NOTE = (
    "the devices and their settings are in a database server, and not in the archive: copy them"
    " with its own tool (PostgreSQL: pg_dump and pg_restore)"
)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Result of a command. `files`: name in the archive -> path on this machine. `notes`: sentences
    for the operator."""

    archive: Path
    files: Mapping[str, Path]
    notes: Sequence[str] = field(default_factory=tuple)


def backup(options: argparse.Namespace, environ: Mapping[str, str]) -> ExitCode:
    """Writes the archive. Raises ConfigError or BackupError."""
    archive: Path = options.file
    if archive.exists() and not options.force:
        raise BackupError(f"{archive} exists already; name another file, or use --force")
    config_file = find_file(environ, options.config)
    effective = load(environ, file=options.config)
    sources = {} if config_file is None else {CONFIG_FILE: config_file}
    notes = list(_variable_notes(effective))
    state = _state_files(effective.config)
    sources |= {name: file for name, file in state.items() if file.exists()}
    if _sqlite_file(effective.config) is None:
        notes.append(DATABASE_SERVER_NOTE)
    if not sources:
        raise BackupError(
            "there is nothing to save: no configuration file, and no state in"
            f" {_state_dir(effective.config)}"
        )
    files = {
        name: copy_of(file) if name == DATABASE_FILE else _read(file)
        for name, file in sources.items()
    }
    write_private(archive, pack(files, product_version(), datetime.now(UTC)))
    _report(_Outcome(archive, sources, notes), "saved", PRIVACY_WARNING, as_json=options.json)
    return ExitCode.OK


def restore(options: argparse.Namespace, environ: Mapping[str, str]) -> ExitCode:
    """Writes the files of an archive back. Raises ConfigError or BackupError."""
    archive: Path = options.file
    try:
        content = unpack(_read(archive))
    except BackupError as error:
        raise BackupError(f"{archive}: {error}") from error
    config_file = options.config or Path(environ.get("EARSHOT_CONFIG") or DEFAULT_FILE)
    effective = _restored_settings(content, config_file, environ)
    targets, notes = _targets(content, config_file, effective.config)
    _check_restorable(content, targets, is_forced=options.force)
    folder = open_folder(effective.config.paths.state_dir)
    for name, target in targets.items():
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if name == DATABASE_FILE:
            _remove_side_files(target)
        write_private(target, content.files[name])
        if name != CONFIG_FILE:
            _give_to_owner(target, folder)
    notes = [*notes, *_variable_notes(effective)]
    summary = f"restored what Earshot {content.made_by} saved at {content.made}"
    _report(_Outcome(archive, targets, notes), "restored", summary, as_json=options.json)
    return ExitCode.OK


def _state_dir(config: Config) -> Path:
    return Path(config.paths.state_dir).expanduser()


def _state_files(config: Config) -> dict[str, Path]:
    """Returns name in the archive -> path, of all files except the configuration."""
    folder = _state_dir(config)
    files = {API_KEY_FILE: folder / KEY_FILE, OWN_TLS_FILE: folder / TLS_FILE}
    if config.server.tls not in ("off", "auto"):
        certificate, _, key = config.server.tls.partition(":")
        files |= {CERTIFICATE_FILE: Path(certificate), CERTIFICATE_KEY_FILE: Path(key)}
    if database := _sqlite_file(config):
        files[DATABASE_FILE] = database
    return files


def _sqlite_file(config: Config) -> Path | None:
    """Returns the file of the device database; None if it is not SQLite's."""
    url = engine_of(database_url(config)).url
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def _variable_notes(effective: EffectiveConfig) -> Sequence[str]:
    """Returns a note that names the environment variables with settings, because no archive holds
    them; nothing if there are none."""
    origins = {origin.removeprefix("env:") for origin in effective.origins.values()}
    names = ", ".join(sorted(name for name in origins if name.startswith("EARSHOT_")))
    return [f"settings in environment variables are not in the archive: {names}"] if names else []


def _restored_settings(
    content: Backup, config_file: Path, environ: Mapping[str, str]
) -> EffectiveConfig:
    """Returns the settings that a server will have with the saved configuration. Raises
    ConfigError."""
    if CONFIG_FILE not in content.files:
        return load(environ, file=config_file if config_file.is_file() else None)
    with TemporaryDirectory() as folder:
        file = Path(folder) / CONFIG_FILE
        write_private(file, content.files[CONFIG_FILE])
        return load(environ, file=file)


def _targets(
    content: Backup, config_file: Path, config: Config
) -> tuple[dict[str, Path], Sequence[str]]:
    """Returns (name -> path to write, notes). A certificate that the configuration names goes to
    the state folder, so that an archive writes nowhere else."""
    folder, notes = _state_dir(config), []
    paths = {CONFIG_FILE: config_file, **_state_files(config)}
    certificate_paths = {CERTIFICATE_FILE: folder / CERTIFICATE_FILE}
    certificate_paths[CERTIFICATE_KEY_FILE] = folder / CERTIFICATE_KEY_FILE
    paths |= certificate_paths
    if certificate_paths.keys() <= content.files.keys() and config.server.tls != ":".join(
        map(str, certificate_paths.values())
    ):
        setting = ":".join(str(path.absolute()) for path in certificate_paths.values())
        notes.append(f'to use the restored certificate, write tls = "{setting}" under [server]')
    if DATABASE_FILE in content.files and DATABASE_FILE not in paths:
        raise BackupError(
            "the archive holds an SQLite database, but devices.database names a database server"
        )
    if DATABASE_FILE not in paths:
        notes.append(DATABASE_SERVER_NOTE)
    return {name: paths[name] for name in NAMES if name in content.files}, notes


def _check_restorable(content: Backup, targets: Mapping[str, Path], *, is_forced: bool) -> None:
    """Raises BackupError if the database in the archive is damaged, if a server has its database
    open, or if files exist and `is_forced` is false."""
    if DATABASE_FILE in content.files:
        check(content.files[DATABASE_FILE])
        if is_open_elsewhere(targets[DATABASE_FILE]):
            raise BackupError(
                f"a server is running with {targets[DATABASE_FILE]}; stop it before you restore"
            )
    existing = [str(path) for path in targets.values() if path.exists()]
    if existing and not is_forced:
        raise BackupError(
            f"these files exist already: {', '.join(existing)}; --force replaces them (`earshot"
            " backup` saves them first)"
        )


def _remove_side_files(database: Path) -> None:
    """Removes the journals of an older database. SQLite would read them together with the restored
    file."""
    for suffix in SQLITE_SIDE_FILES:
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def _give_to_owner(file: Path, folder: Path) -> None:
    """Gives a file to the owner of the state folder: root may restore the state of a service, which
    runs as another user."""
    owner = folder.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.chown(file, owner.st_uid, owner.st_gid)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BackupError(f"{file}: {error.strerror or error}") from error


def _report(outcome: _Outcome, verb: str, last_line: str, *, as_json: bool) -> None:
    if as_json:
        report = {
            "archive": str(outcome.archive),
            "files": {name: str(path) for name, path in outcome.files.items()},
            "notes": list(outcome.notes),
        }
        print(msgspec.json.encode(report).decode())
        return
    for name, path in outcome.files.items():
        print(f"{verb}: {path} ({NAMES[name]})")
    for note in outcome.notes:
        print(f"earshot: {note}", file=sys.stderr)
    print(f"{outcome.archive}: {last_line}")
