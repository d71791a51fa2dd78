"""Whether who comes is who was approved.

Everybody in its network knows a device's MAC, so a person approves the MAC together with what the
device keeps to itself. Who comes with the same MAC and something else waits as a new device does,
and takes nothing from who was approved: one request is not enough to silence a board.
"""

import logging
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row

from devices.directory import Device
from devices.registry import queries, tokens

logger = logging.getLogger(__name__)


def has_other_identity(row: Row[Any], identity: bytes) -> bool:
    """Whether the device is approved, but not with this identity. Empty: nothing to compare."""
    return bool(
        row.standing == "approved" and identity and row.identity and row.identity != identity
    )


def is_late(row: Row[Any], identity: bytes) -> bool:
    """Whether somebody else waits for approval under this device's code."""
    return bool(identity and row.pairing_code and pending_identity(row) not in (None, identity))


def device_view_for(row: Row[Any], identity: bytes) -> Device:
    """The device as it is for who comes with this identity. Who is late is not told the code: a
    person who compares would take him for who waits under it."""
    device = queries.device_of(row)
    if has_other_identity(row, identity):
        device = replace(device, standing="new")
    if device.standing == "new" and is_late(row, identity):
        device = replace(device, pairing_code="")
    return device


def approval_columns(
    connection: Connection, row: Row[Any], identity: bytes | None
) -> dict[str, Any]:
    """The columns of a device that is approved with this identity; keys of another are void."""
    if identity != row.identity:
        tokens.revoke(connection, row.id, but=identity)
    return {"standing": "approved", "identity": identity, **queries.NO_CODE}


def pending_identity(row: Row[Any]) -> bytes | None:
    """The identity that a person's approval is for."""
    found: bytes | None = row.claimed_identity or row.identity
    return found


def tell_adopted(row: Row[Any]) -> None:
    """It was approved before identities were kept: a person may want to know when that was made
    good."""
    logger.info("= device %s: identity adopted, from now on it is known by it", row.id)
