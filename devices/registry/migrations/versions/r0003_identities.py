"""Adds identities: digests of secrets of the devices.

Devices approved before have none. The first identity that such a device shows is taken as its own,
so that nobody has to approve it again after the upgrade.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds the columns; run by Alembic."""
    for name in ("identity", "claimed_identity"):
        op.add_column("devices", sa.Column(name, sa.LargeBinary(32)))
