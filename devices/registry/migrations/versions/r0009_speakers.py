"""Adds the people whose voices the server knows."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Creates the tables; run by Alembic."""
    op.create_table(
        "speakers",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("owner", "name", name="speakers_name"),
    )
    op.create_table(
        "voice_samples",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("speaker_id", sa.String(40), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sa.Column("speech_ms", sa.Integer, nullable=False),
        sa.Column("added", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["speaker_id"], ["speakers.id"], name="voice_samples_speaker", ondelete="CASCADE"
        ),
        sa.Index("voice_samples_by_speaker", "speaker_id"),
    )
