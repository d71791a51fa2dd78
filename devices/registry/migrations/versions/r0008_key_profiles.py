"""Adds the profiles of named keys. Keys of earlier versions have the server's settings."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Adds the column; run by Alembic."""
    op.add_column("named_keys", sa.Column("profile", sa.JSON, nullable=False, server_default="{}"))
