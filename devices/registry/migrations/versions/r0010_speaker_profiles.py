"""Adds the profiles of people. People of earlier versions have the settings of each session."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Adds the column; run by Alembic."""
    op.add_column("speakers", sa.Column("profile", sa.JSON, nullable=False, server_default="{}"))
