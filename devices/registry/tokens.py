"""Keys of devices. Only digests are kept: who reads the database cannot speak as a device. A token
is looked up by its digest, so how long that takes tells nothing about it."""

import secrets
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from devices.registry.tables import devices, tokens

PREFIX = "dev_"
"Says what it is to whoever finds one."

MAX_PER_DEVICE = 16
"A board may ask for one at each start, and fail to keep it; the oldest go first."


def new_token() -> str:
    """256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def keep(
    connection: Connection, token: str, device_id: str, now: datetime, life: timedelta
) -> None:
    """Beside the device's last few."""
    connection.execute(delete(tokens).where(tokens.c.expires <= now))
    newest = select(tokens.c.digest).where(tokens.c.device_id == device_id)
    older = connection.execute(newest.order_by(tokens.c.issued.desc()).offset(MAX_PER_DEVICE - 1))
    connection.execute(delete(tokens).where(tokens.c.digest.in_(older.scalars().all())))
    row = {"digest": digest_of(token), "device_id": device_id, "issued": now, "expires": now + life}
    connection.execute(insert(tokens).values(row))


def bearer(connection: Connection, token: str, now: datetime) -> Row[Any] | None:
    """The approved device whose key this is."""
    where = (tokens.c.digest == digest_of(token)) & (tokens.c.expires > now)
    asked = select(devices).join(tokens).where(where, devices.c.standing == "approved")
    return connection.execute(asked).one_or_none()


def revoke(connection: Connection, device_id: str) -> None:
    """All keys of a device."""
    connection.execute(delete(tokens).where(tokens.c.device_id == device_id))


def digest_of(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()
