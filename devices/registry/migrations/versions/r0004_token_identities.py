"""The identity of the board that a key was given to. A board that waits for approval has its key
already, and nobody but that board may use it. Keys of earlier versions have none."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Run by Alembic."""
    op.add_column("tokens", sa.Column("identity", sa.LargeBinary(32)))
