"""Adds to each key the identity of the board that received it.

A board that waits for approval already has its key, and only that board may use it. Keys of earlier
versions have no identity.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds the column; run by Alembic."""
    op.add_column("tokens", sa.Column("identity", sa.LargeBinary(32)))
