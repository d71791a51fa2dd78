"""Checks whether a device that connects is the one that was approved.

Everybody in its network knows a device's MAC. So a person approves the MAC together with the digest
of a secret of the device. A device with the same MAC and another identity waits for approval like a
new device. The approved device is still served: one request is not enough to silence a board.
"""

import logging
from dataclasses import replace

from sqlalchemy import Connection

from devices.fleet.directory import Device
from devices.registry import queries, tokens
from devices.registry.tables import DeviceRow

logger = logging.getLogger(__name__)


def has_other_identity(row: DeviceRow, identity: bytes) -> bool:
    """Returns True if the device is approved, but with another identity. An empty identity is not
    compared."""
    return bool(
        row.standing == "approved" and identity and row.identity and row.identity != identity
    )


def is_late(row: DeviceRow, identity: bytes) -> bool:
    """Returns True if this identity came too late: another one already waits for approval under
    this device's code."""
    return bool(identity and row.pairing_code and pending_identity(row) not in (None, identity))


def device_view_for(row: DeviceRow, identity: bytes) -> Device:
    """Returns the device as a client with this identity may see it.

    The code is hidden when another identity waits under it: a person who compares codes would
    confuse the two.
    """
    device = queries.device_of(row)
    if has_other_identity(row, identity):
        device = replace(device, standing="new")
    if device.standing == "new" and is_late(row, identity):
        device = replace(device, pairing_code="")
    return device


def approval_columns(
    connection: Connection, row: DeviceRow, identity: bytes | None
) -> dict[str, object]:
    """Returns the columns that approve a device with this identity, and voids the keys of other
    identities."""
    if identity != row.identity:
        tokens.revoke(connection, row.id, excluded=identity)
    return {"standing": "approved", "identity": identity, **queries.NO_CODE}


def pending_identity(row: DeviceRow) -> bytes | None:
    """Returns the identity that a person's approval would be for."""
    found: bytes | None = row.claimed_identity or row.identity
    return found


def log_adopted(row: DeviceRow) -> None:
    """Logs that a device approved before identities were stored has one now: a person may want to
    know when."""
    logger.info("= device %s: identity adopted: the device is recognised by it from now on", row.id)
