"""Adds the named keys of persons and programs."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Creates the table; run by Alembic."""
    op.create_table(
        "named_keys",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("max_sessions", sa.Integer),
        sa.Column("requests_per_minute", sa.Integer),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("name", name="named_keys_name"),
        sa.UniqueConstraint("digest", name="named_keys_digest"),
    )
