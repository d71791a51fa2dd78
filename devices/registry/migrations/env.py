"""Script that Alembic runs; `migrate.py` holds the connection, its transaction and the lock."""

from alembic import context
from sqlalchemy import Connection

from devices.registry.tables import metadata


def run(connection: Connection) -> None:
    """Runs every migration that the database does not have yet."""
    context.configure(connection=connection, target_metadata=metadata, transactional_ddl=False)
    context.run_migrations()


if hasattr(context, "config"):  # true when Alembic runs this file, false when it is imported
    run(context.config.attributes["connection"])
