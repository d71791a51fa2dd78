"""Run by Alembic, for which `migrate.py` holds the connection, its transaction and the lock."""

from alembic import context
from sqlalchemy import Connection

from devices.registry.tables import metadata


def run(connection: Connection) -> None:
    """Every migration that the database has not had."""
    context.configure(connection=connection, target_metadata=metadata, transactional_ddl=False)
    context.run_migrations()


if hasattr(context, "config"):  # Alembic loads this file to run it; others only import it
    run(context.config.attributes["connection"])
