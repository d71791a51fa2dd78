"""Adds the tool calls of kept turns. Turns of earlier versions have none."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Adds the column; run by Alembic."""
    op.add_column(
        "kept_turns", sa.Column("tool_calls", sa.JSON, nullable=False, server_default="[]")
    )
