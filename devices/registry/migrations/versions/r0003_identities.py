"""Digests of what devices keep to themselves. Those approved before have none: the first that comes
is taken for theirs, so that nobody has to approve them again for the upgrade."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Run by Alembic."""
    for name in ("identity", "claimed_identity"):
        op.add_column("devices", sa.Column(name, sa.LargeBinary(32)))
