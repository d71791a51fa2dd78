"""Adds what people think of voices."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Creates the table; run by Alembic."""
    op.create_table(
        "voice_ratings",
        sa.Column("owner", sa.String(40), primary_key=True),
        sa.Column("voice", sa.String(128), primary_key=True),
        sa.Column("good", sa.Integer, nullable=False),
        sa.Column("bad", sa.Integer, nullable=False),
    )
