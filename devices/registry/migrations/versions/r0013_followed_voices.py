"""Marks the recordings that the server added by itself to those of a person."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Adds the column; run by Alembic."""
    column = sa.Column("is_followed", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("voice_samples", column)
