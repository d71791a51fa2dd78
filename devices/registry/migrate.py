"""The tables as this version wants them, whatever version wrote them."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from core.errors import StorageError

_LOCK = 0x6561727368  # of this database, for all who start at once; any number that is ours

NEWEST = "head"


def migrate(connection: Connection, revision: str = NEWEST) -> None:
    """Within the connection's transaction, that is wholly or not at all. Several servers may start
    at once: SQLite's transactions exclude each other from their beginning, PostgreSQL is asked to.

    Raises StorageFailed for a database that a newer version wrote.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))  # an ini file's escape
    scripts = ScriptDirectory.from_config(config)
    present = MigrationContext.configure(connection).get_current_revision()
    if present is not None and present not in {one.revision for one in scripts.walk_revisions()}:
        raise StorageError(
            f"the database is of a newer Earshot (its tables are at {present!r},"
            f" this version knows them up to {scripts.get_current_head()!r})"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
