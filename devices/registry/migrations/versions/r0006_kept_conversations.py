"""Adds the conversations that persons keep on the server."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Creates the tables; run by Alembic."""
    op.create_table(
        "kept_conversations",
        sa.Column("owner", sa.String(40), primary_key=True),
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("changed", sa.DateTime(timezone=True), nullable=False),
        sa.Column("turn_count", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
    )
    op.create_table(
        "kept_turns",
        sa.Column("owner", sa.String(40), primary_key=True),
        sa.Column("conversation_id", sa.String(64), primary_key=True),
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("said", sa.Text, nullable=False),
        sa.Column("reply", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["owner", "conversation_id"],
            ["kept_conversations.owner", "kept_conversations.id"],
            name="kept_turns_conversation",
            ondelete="CASCADE",
        ),
    )
