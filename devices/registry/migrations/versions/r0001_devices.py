"""Adds devices and their tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates the tables; run by Alembic."""
    op.create_table(
        "devices",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("hardware_id", sa.String(128), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("area", sa.String(64), nullable=False),
        sa.Column("standing", sa.String(16), nullable=False),
        sa.Column("profile", sa.JSON(), nullable=False),
        sa.Column("board", sa.String(64), nullable=False),
        sa.Column("firmware", sa.String(64), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("pairing_code", sa.String(6)),
        sa.Column("pairing_code_expires", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("kind", "hardware_id", name="devices_hardware"),
        sa.UniqueConstraint("pairing_code", name="devices_pairing_code"),
    )
    op.create_table(
        "tokens",
        sa.Column("digest", sa.LargeBinary(32), primary_key=True),
        sa.Column(
            "device_id",
            sa.String(40),
            sa.ForeignKey("devices.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("issued", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("tokens_device", "tokens", ["device_id"])
