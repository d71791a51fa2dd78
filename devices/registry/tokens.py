"""Keys of devices. Only digests are stored, so a reader of the database cannot act as a device.

A key is looked up by its digest, so the time of the look-up reveals nothing about the key.
"""

import secrets
from datetime import datetime, timedelta
from hashlib import sha256

from sqlalchemy import Connection, delete, insert, select

from devices.registry.tables import DeviceRow, devices, tokens

PREFIX = "dev_"
"Prefix that shows a person who finds a key what it is."

MAX_PER_DEVICE = 16
"""Limit per device and identity; the oldest go first. A board may ask for a key at each start and
fail to store it."""


def new_token() -> str:
    """Returns a key of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def store(
    connection: Connection,
    token: str,
    device: DeviceRow,
    identity: bytes,
    now: datetime,
    life: timedelta,
) -> None:
    """Stores a key in addition to the last few of the same board.

    Deletes keys of boards that no longer wait for approval, and expired keys.
    identity: identity of the board that receives the key; empty: not known.
    """
    is_this = tokens.c.device_id == device.id
    known = [
        board_identity
        for board_identity in (device.identity, device.claimed_identity)
        if board_identity is not None
    ]
    is_gone = tokens.c.identity.is_not(None) & tokens.c.identity.not_in(known)
    connection.execute(delete(tokens).where((tokens.c.expires <= now) | (is_this & is_gone)))
    # Counted for each identity: a device that claims a board's MAC must not push out the board's
    # keys.
    same = tokens.c.identity == identity if identity else tokens.c.identity.is_(None)
    newest = select(tokens.c.digest).where(is_this, same)
    older = connection.execute(newest.order_by(tokens.c.issued.desc()).offset(MAX_PER_DEVICE - 1))
    connection.execute(delete(tokens).where(tokens.c.digest.in_(older.scalars().all())))
    row = {
        "digest": digest_of(token),
        "device_id": device.id,
        "issued": now,
        "expires": now + life,
        "identity": identity or None,
    }
    connection.execute(insert(tokens).values(row))


def device_row_with_key(
    connection: Connection, token: str, identity: bytes, now: datetime
) -> DeviceRow | None:
    """Returns the device that this key belongs to, approved or not.

    identity: identity of the board that uses the key; empty: the door knows none.
    """
    where = (tokens.c.digest == digest_of(token)) & (tokens.c.expires > now)
    if identity:
        where &= tokens.c.identity.is_(None) | (tokens.c.identity == identity)
    return connection.execute(select(devices).join(tokens).where(where)).one_or_none()


def revoke(connection: Connection, device_id: str, *, excluded: bytes | None = None) -> None:
    """Voids all keys of a device, apart from those of the board with the identity `excluded`."""
    where = tokens.c.device_id == device_id
    if excluded is not None:
        where &= tokens.c.identity.is_(None) | (tokens.c.identity != excluded)
    connection.execute(delete(tokens).where(where))


def digest_of(token: str) -> bytes:
    """Returns the digest under which a token is stored."""
    return sha256(token.encode("utf-8", "replace")).digest()
