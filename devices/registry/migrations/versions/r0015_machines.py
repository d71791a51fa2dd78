"""Adds the servers of several machines, and the rooms that they answer in."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Adds the tables; run by Alembic."""
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "machines",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("url", sa.String(256), nullable=False),
        sa.Column("peer_address", sa.String(64), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("load", sa.Float, nullable=False),
        sa.Column("max_sessions", sa.Integer, nullable=False),
        sa.Column("takes_calls", sa.Boolean, nullable=False),
        sa.Column("rooms", sa.JSON, nullable=False),
        sa.Column("devices", sa.JSON, nullable=False),
        sa.Column("heartbeat", moment, nullable=False),
    )
    op.create_table(
        "wake_claims",
        sa.Column("room", sa.String(64), primary_key=True),
        sa.Column("device_id", sa.String(40), nullable=False),
        sa.Column("claimed", moment, nullable=False),
    )
