"""Adds the telephone numbers of people."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Creates the table; run by Alembic."""
    op.create_table(
        "telephone_numbers",
        sa.Column("number", sa.String(16), primary_key=True),
        sa.Column("speaker_id", sa.String(40), nullable=False),
        sa.ForeignKeyConstraint(
            ["speaker_id"], ["speakers.id"], name="telephone_numbers_speaker", ondelete="CASCADE"
        ),
        sa.Index("telephone_numbers_by_speaker", "speaker_id"),
    )
