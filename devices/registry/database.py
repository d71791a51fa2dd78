"""Access to one database through one thread, so that the event loop never waits for a disk."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from core.errors import ConfigError, StorageError
from core.private_files import make_private
from devices.registry.tables import devices

# advisory lock of this database, for servers that start at the same time; an arbitrary number
_LOCK = 0x6561727368

NEWEST = "head"
"Alembic's name of the newest revision."


def migrate(connection: Connection, revision: str = NEWEST) -> None:
    """Migrates within the connection's transaction, so either wholly or not at all.

    Several servers may start at once. SQLite's transactions exclude each other from their
    beginning; for PostgreSQL a lock is taken. Raises StorageError for a database that a newer
    version wrote.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    # % is escaped as %% in an ini file
    config.set_main_option("script_location", folder.replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    present = MigrationContext.configure(connection).get_current_revision()
    if present is not None and present not in {
        script.revision for script in scripts.walk_revisions()
    }:
        raise StorageError(
            f"the database was made by a newer version of Earshot (its tables are at {present!r},"
            f" this version supports up to {scripts.get_current_head()!r})"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 15.0
"""Limit for one call, in seconds. It is longer than the database's limit for one statement
(BUSY_S); a device that waits longer has given up."""

BUSY_S = 5
"""Longest wait for another process that writes, in seconds: for SQLite's lock, and for PostgreSQL's
statements and connections."""

LOST_S = 5
"""Seconds after which a PostgreSQL that answers nothing on an open connection, as behind a broken
network, counts as lost. Without this limit, TCP would wait for a quarter of an hour."""

RETRY_S = 0.05
"Wait before the journal of a file that another process opens is set again."

TRIES = 3
"""Attempts when a constraint fails: another process wrote the same at the same moment, or a random
code is already taken."""

T = TypeVar("T")

Transaction = Callable[[Connection], T]
"""Work that runs in the thread, in one transaction. It may be run again, so it must have no side
effects."""


class Database:
    """Runs one transaction after the other. After a failure the next call connects again, so the
    server survives a restart of its database."""

    def __init__(self, engine: Engine, *, is_shared: bool = False) -> None:
        """`is_shared`: other processes of this server use the same database."""
        self._engine = engine
        self.is_shared = is_shared
        self._thread = ThreadPoolExecutor(1, "devices-database")
        self._is_migrated = False
        self._is_away = False
        "True: the last transaction failed because the database could not be reached."

    @property
    def driver(self) -> str:
        """Name of the driver in SQLAlchemy's form, such as `postgresql+psycopg`."""
        return self._engine.url.drivername

    def connect_arguments(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Returns the arguments for the driver's own `connect`, positional and by name."""
        url = self._engine.url
        listed, named = self._engine.dialect.create_connect_args(url)
        return listed, {**named, **_options(url).get("connect_args", {})}

    async def run(self, work: Transaction[T]) -> T:
        """Runs `work` in a transaction and returns its result. Raises StorageError, and errors of
        `work`."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await loop.run_in_executor(self._thread, partial(self._transact, work))
        except TimeoutError as error:
            raise StorageError("the device database does not answer") from error

    async def sqlite_version(self) -> int:
        """Returns a number that changes when another process has written to an SQLite database.
        Raises StorageError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._sqlite_version)

    def _sqlite_version(self) -> int:
        try:
            connection = self._engine.raw_connection()
            try:
                # Without a transaction, which would take the lock for writing.
                cursor = connection.cursor()
                cursor.execute("PRAGMA data_version")
                row = cursor.fetchone()
                return int(row[0]) if row else 0
            finally:
                connection.close()
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise StorageError("the device database cannot be read") from error

    async def close(self) -> None:
        """Closes the database after the transaction that is running."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._engine.dispose)
        self._thread.shutdown(wait=False)

    def _transact(self, work: Transaction[T]) -> T:
        try:
            result = self._transact_retrying(work)
        except (SQLAlchemyError, OSError) as error:
            self._log_failure(error)
            raise StorageError("the device database cannot be read or written") from error
        if self._is_away:
            self._is_away = False
            logger.info("= devices: the database works again")
        return result

    def _transact_retrying(self, work: Transaction[T]) -> T:
        if not self._is_migrated:
            self._prepare()
        for _ in range(TRIES - 1):
            with suppress(IntegrityError):
                return self._transact_once(work)
        return self._transact_once(work)

    def _log_failure(self, error: Exception) -> None:
        """Logs a failure. While the database cannot be reached, only the first one is logged."""
        is_away = isinstance(error, OperationalError)
        if not (is_away and self._is_away):
            logger.error("! devices: %s", first_line(error))
        self._is_away = self._is_away or is_away

    def _transact_once(self, work: Transaction[T]) -> T:
        with self._engine.begin() as connection:
            return work(connection)

    def _prepare(self) -> None:
        _make_files_private(self._engine.url)
        with self._engine.begin() as connection:
            migrate(connection)
        self._is_migrated = True


@asynccontextmanager
async def open_database(url: str, *, is_shared: bool = False) -> AsyncIterator[Database]:
    """Opens a database. `is_shared`: other processes of this server use it. Raises ConfigError for
    a URL that can never work. A database that cannot be reached now is only logged."""
    database = Database(engine_of(url), is_shared=is_shared)
    try:
        await database.run(lambda connection: None)
    except StorageError as error:
        logger.warning("! %s; devices are refused until it works again", error)
    try:
        yield database
    finally:
        await database.close()


def sqlite_url(file: Path) -> str:
    """Returns SQLAlchemy's URL for an SQLite file."""
    return URL.create("sqlite", database=str(file)).render_as_string()


def engine_of(url: str) -> Engine:
    """Returns SQLAlchemy's engine for a URL. Raises ConfigError."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "postgresql" and "+" not in parsed.drivername:
            parsed = parsed.set(drivername="postgresql+psycopg")
        engine = create_engine(parsed, pool_pre_ping=True, hide_parameters=True, **_options(parsed))
    except (ArgumentError, NoSuchModuleError):
        # SQLAlchemy's own text repeats the URL, with the password.
        raise ConfigError(
            "config.devices.database: must be an SQLAlchemy URL like"
            " postgresql://user:password@host/name or sqlite:////path/to/file.db"
        ) from None
    except ImportError as error:
        extra = "; `earshot extras add postgresql` installs it" if error.name == "psycopg" else ""
        raise ConfigError(f"config.devices.database: {error}{extra}") from error
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _options(url: URL) -> dict[str, Any]:
    match url.get_backend_name():
        case "sqlite":
            return {"connect_args": {"timeout": BUSY_S, "check_same_thread": False}}
        case "postgresql":
            limits = f"-c statement_timeout={BUSY_S * 1000} -c lock_timeout={BUSY_S * 1000}"
            alive = {
                "tcp_user_timeout": 1000 * LOST_S,
                "keepalives_idle": LOST_S,
                "keepalives_interval": 1,
                "keepalives_count": LOST_S,
            }
            arguments = {"connect_timeout": BUSY_S, "options": limits, **alive}
            return {"pool_size": 1, "connect_args": arguments}
        case _:
            return {"pool_size": 1}


def _set_up_sqlite(connection: sqlite3.Connection, _: object) -> None:
    # Python's own transactions would begin too late for changes of tables
    connection.isolation_level = None
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    # A conversation that its owner deletes must not stay readable in free pages of the file.
    connection.execute("PRAGMA secure_delete = ON")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Sets the journal that writes to the disk once instead of three times.

    SQLite does not wait for the lock of this statement, so servers that open a new file at the same
    moment try it again.
    """
    until_s = monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if monotonic() > until_s:
                raise
            sleep(RETRY_S)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    # takes the lock now; a transaction that asks for it later may deadlock
    connection.exec_driver_sql("BEGIN IMMEDIATE")


SQLITE_SIDE_FILES = ("-wal", "-shm", "-journal")
"Endings of the files that SQLite keeps next to its own. They have the same content."


def _make_files_private(url: URL) -> None:
    """Makes SQLite's files private to their owner: they hold device names and digests of keys.

    Raises ConfigError for files of another user.
    """
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        file = Path(url.database)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (file, *(file.with_name(file.name + end) for end in SQLITE_SIDE_FILES)):
            if warning := make_private(path, "config.devices.database"):
                logger.warning("! devices: %s", warning)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))


def first_line(error: Exception) -> str:
    """Returns an error's first line, without the statement, parameters and link that SQLAlchemy
    appends."""
    cause = getattr(error, "orig", None) or error
    return str(cause).partition("\n")[0]


# Look at the database from outside of a server; nothing is created or migrated.


def count_devices(url: str) -> int | None:
    """Returns the number of known devices; None: there are no tables yet. Raises ConfigError,
    StorageError."""
    engine = engine_of(url)
    file = engine.url.database if engine.url.get_backend_name() == "sqlite" else None
    if file is not None and not Path(file).exists():
        return None
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table(devices.name):
                return None
            return connection.execute(select(func.count()).select_from(devices)).scalar_one()
    except (SQLAlchemyError, OSError) as error:
        raise StorageError(first_line(error)) from error
    finally:
        engine.dispose()
