"""Run by Alembic. `migrate.py` gives the connection, inside a transaction that holds the lock;
from a checkout, `alembic revision` writes a new migration beside the others."""

from alembic import context
from sqlalchemy import Connection

from devices.registry.tables import metadata

connection: Connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=False)
context.run_migrations()
