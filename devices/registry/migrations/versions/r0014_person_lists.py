"""Adds the lists of people: things to buy and to do that belong to one person, not to the house."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Adds the table; run by Alembic."""
    op.create_table(
        "person_list_items",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column(
            "speaker_id",
            sa.String(40),
            sa.ForeignKey("speakers.id", ondelete="CASCADE", name="person_list_items_speaker"),
            nullable=False,
        ),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
    )
    op.create_index("person_list_items_by_speaker", "person_list_items", ["speaker_id"])
