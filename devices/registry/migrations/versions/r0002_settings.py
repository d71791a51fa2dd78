"""Adds settings of the device doors."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Creates the table; run by Alembic."""
    op.create_table(
        "settings",
        sa.Column("owner", sa.String(40), primary_key=True),
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("value", sa.JSON(), nullable=False),
    )
