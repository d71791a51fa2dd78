"""Adds the voices that people made of recordings."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Creates the table; run by Alembic."""
    op.create_table(
        "own_voices",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("language", sa.String(8), nullable=False),
        sa.Column("consent", sa.Text, nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("condition", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("owner", "name", name="own_voices_name"),
    )
