"""Migration of the tables to this version, from any earlier version."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from core.errors import StorageError

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
