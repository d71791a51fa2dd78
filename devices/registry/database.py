"""One database, one thread that speaks to it: the event loop never waits for a disk."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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
)
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from core.errors import ConfigError, StorageError
from core.private_files import make_private
from devices.registry.migrate import migrate
from devices.registry.tables import devices

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 15.0
"A device that waits longer has given up; longer than the database is given for one statement."

BUSY_S = 5
"Another process may write for so long: SQLite's lock, PostgreSQL's statements and connecting."

TRIES = 3
"""Of work that runs into a constraint: somebody wrote the same at the same moment, or a random code
is another's."""

T = TypeVar("T")

Transaction = Callable[[Connection], T]
"Runs in the thread, in one transaction; may be run again, so it changes nothing else."


class Database:
    """`run` does one transaction after the other. What cannot be reached is tried again by the
    next: a server outlives its database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "devices-database")
        self._is_migrated = False

    @property
    def driver(self) -> str:
        """As SQLAlchemy names it, `postgresql+psycopg`."""
        return self._engine.url.drivername

    def how_to_connect(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """What the driver's own `connect` is given, by place and by name."""
        url = self._engine.url
        listed, named = self._engine.dialect.create_connect_args(url)
        return listed, {**named, **_options(url).get("connect_args", {})}

    async def run(self, work: Transaction[T]) -> T:
        """Raises StorageFailed, and what `work` raises on its own account."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await loop.run_in_executor(self._thread, partial(self._transact, work))
        except TimeoutError as error:
            raise StorageError("the database of devices does not answer") from error

    async def close(self) -> None:
        """When what is under way is done."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._engine.dispose)
        self._thread.shutdown(wait=False)

    def _transact(self, work: Transaction[T]) -> T:
        try:
            if not self._is_migrated:
                self._prepare()
            for _ in range(TRIES - 1):
                with suppress(IntegrityError):
                    return self._once(work)
            return self._once(work)
        except (SQLAlchemyError, OSError) as error:
            logger.error("! devices: %s", first_line(error))
            raise StorageError("the database of devices cannot be read or written") from error

    def _once(self, work: Transaction[T]) -> T:
        with self._engine.begin() as connection:
            return work(connection)

    def _prepare(self) -> None:
        _shut_file(self._engine.url)
        with self._engine.begin() as connection:
            migrate(connection)
        self._is_migrated = True


@asynccontextmanager
async def open_database(url: str) -> AsyncIterator[Database]:
    """Raises ConfigError for a URL that can never work. One that does not work now is logged."""
    database = Database(engine_of(url))
    try:
        await database.run(lambda connection: None)
    except StorageError as error:
        logger.warning("! %s; devices are turned away until it can", error)
    try:
        yield database
    finally:
        await database.close()


def sqlite_url(file: Path) -> str:
    return URL.create("sqlite", database=str(file)).render_as_string()


def engine_of(url: str) -> Engine:
    """Raises ConfigError."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "postgresql" and "+" not in parsed.drivername:
            parsed = parsed.set(drivername="postgresql+psycopg")
        engine = create_engine(parsed, pool_pre_ping=True, hide_parameters=True, **_options(parsed))
    except (ArgumentError, NoSuchModuleError):
        # Its own text repeats the URL, password included.
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
            return {"pool_size": 1, "connect_args": {"connect_timeout": BUSY_S, "options": limits}}
        case _:
            return {"pool_size": 1}


def _set_up_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # Python's own would begin too late for changes of tables
    connection.execute("PRAGMA journal_mode = WAL")  # one write to the disk in place of three
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # waits now; one that waits later may deadlock


SQLITE_SIDE_FILES = ("-wal", "-shm", "-journal")
"Ends of the names of files that SQLite has beside its own, with the same content in them."


def _shut_file(url: URL) -> None:
    """SQLite's files are their owner's alone: they hold who is in the house, and digests of keys.
    Raises ConfigError for those of another user."""
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        file = Path(url.database)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for one in (file, *(file.with_name(file.name + end) for end in SQLITE_SIDE_FILES)):
            if done := make_private(one, "config.devices.database"):
                logger.warning("! devices: %s", done)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))


def first_line(error: Exception) -> str:
    """Without the statement, its parameters and the link that SQLAlchemy appends."""
    cause = getattr(error, "orig", None) or error
    return str(cause).partition("\n")[0]


# A look at the database from outside of a server; nothing is made or brought up to date.


def count_devices(url: str) -> int | None:
    """How many are known; None: there are no tables yet. Raises ConfigError, StorageFailed."""
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
        cause = getattr(error, "orig", None) or error
        raise StorageError(str(cause).partition("\n")[0]) from error
    finally:
        engine.dispose()
