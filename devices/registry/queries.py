"""SQL statements about devices; each runs inside a transaction of `Database.run`.

A caller that reads in order to write passes `for_update`: where several servers share a database,
the row is then locked until the transaction is over. SQLite's transactions exclude each other
anyway.
"""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, cast

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from core.conversation.ids import new_id
from core.errors import NotFound
from devices.fleet.directory import (
    AnswerProfile,
    ApprovalState,
    Device,
    DeviceClaims,
    DeviceKind,
    DeviceProfile,
    ProfileT,
)
from devices.fleet.pairing import SHOWS_CODE
from devices.registry.sanitize import name_of
from devices.registry.tables import DeviceRow, devices

logger = logging.getLogger(__name__)

MAX_NEW = 200
"""Limit of the devices that wait for approval: any client that reaches the server may invent
devices. Those not seen for the longest time go first."""

NO_CODE = {"pairing_code": None, "pairing_code_expires": None, "claimed_identity": None}
"Columns of a device without a code."

_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def first(
    connection: Connection, where: ColumnElement[bool], *, for_update: bool = False
) -> DeviceRow | None:
    """Returns the one device that matches, or None. Waits if another transaction holds the row."""
    query = select(devices).where(where)
    return connection.execute(query.with_for_update() if for_update else query).one_or_none()


def by_hardware(
    connection: Connection, kind: str, hardware_id: str, *, for_update: bool = False
) -> DeviceRow | None:
    """Returns the device with this hardware id, or None if it is unknown."""
    where = (devices.c.kind == kind) & (devices.c.hardware_id == hardware_id)
    return first(connection, where, for_update=for_update)


def by_id(connection: Connection, device_id: str, *, for_update: bool = False) -> DeviceRow:
    """Returns the device. Raises NotFound."""
    row = first(connection, devices.c.id == device_id, for_update=for_update)
    if row is None:
        raise NotFound(f"there is no device {device_id[:64]!r}", code="device_not_found")
    return row


def all_devices(connection: Connection) -> Sequence[Device]:
    """Returns all devices, the longest known first."""
    rows = connection.execute(select(devices).order_by(devices.c.first_seen, devices.c.id))
    return [device_of(row) for row in rows]


def insert_device(connection: Connection, claims: DeviceClaims, now: datetime) -> DeviceRow:
    """Adds the device as new, without a code. If another server just added it, that row is
    returned. The row is locked."""
    values = {
        "id": new_id("dev"),
        "kind": claims.kind,
        "hardware_id": claims.hardware_id,
        "name": name_of(claims),
        "area": "",
        "standing": "new",
        "profile": {},
        "board": claims.board,
        "firmware": claims.firmware,
        "address": claims.address,
        "first_seen": now,
        "last_seen": now,
        "identity": claims.identity or None,
    }
    insert_of = _INSERTS.get(connection.dialect.name)
    wanted = insert_of(devices).on_conflict_do_nothing() if insert_of else insert(devices)
    row = None
    # again if another server added the device and deleted it before this row was locked
    while row is None:
        connection.execute(wanted.values(values))
        row = by_hardware(connection, claims.kind, claims.hardware_id, for_update=True)
    return row


def change(connection: Connection, device_id: str, **values: object) -> Device:
    """Sets columns and returns the device. Raises NotFound."""
    return device_of(update_device(connection, device_id, **values))


def update_device(connection: Connection, device_id: str, **values: object) -> DeviceRow:
    """Sets columns and returns the row. Raises NotFound."""
    if values:
        connection.execute(update(devices).where(devices.c.id == device_id).values(values))
    return by_id(connection, device_id)


def make_room(connection: Connection, now: datetime, new_life: timedelta) -> None:
    """Makes room for one more new device: deletes old devices that were never approved."""
    is_new = devices.c.standing == "new"
    connection.execute(delete(devices).where(is_new, devices.c.last_seen < now - new_life))
    count = connection.execute(select(func.count()).where(is_new)).scalar_one()
    if count >= MAX_NEW:
        oldest = select(devices.c.id).where(is_new).order_by(devices.c.last_seen)
        too_many = connection.execute(oldest.limit(count - MAX_NEW + 1)).scalars().all()
        # `is_new` again: another server may be approving one of them.
        connection.execute(delete(devices).where(is_new, devices.c.id.in_(too_many)))


def device_of(row: DeviceRow) -> Device:
    """Returns the device of a row."""
    return Device(
        id=row.id,
        kind=cast("DeviceKind", row.kind),
        hardware_id=row.hardware_id,
        name=row.name,
        area=row.area,
        standing=cast("ApprovalState", row.standing),
        profile=profile_of(row),
        board=row.board,
        firmware=row.firmware,
        address=row.address,
        last_seen=row.last_seen,
        pairing_code=code_of(row),
        has_new_identity=row.claimed_identity is not None,
        identity=row.identity or b"",
    )


def code_of(row: DeviceRow) -> str:
    """Returns the code that the device, or the newcomer in its place, shows; empty: none.

    It is also empty where an earlier version made a code for a kind that shows none.
    """
    return (row.pairing_code or "") if row.kind in SHOWS_CODE else ""


def profile_of(row: DeviceRow) -> DeviceProfile:
    """Returns the profile of a device."""
    return known_profile(row.profile, DeviceProfile, f"device {row.id}")


def known_profile(stored: object, kind: type[ProfileT], owner: str) -> ProfileT:
    """Returns a stored profile, without values that this version does not know.

    A newer Earshot on the same database may have written them. The owner is served all the same,
    with the server's settings in their place. `owner`: how the log names it.
    """
    kept = stored if isinstance(stored, dict) else {}
    known = {name: value for name, value in kept.items() if _is_known(kind, name, value)}
    if len(known) < len(kept):
        _log_unknown(owner, ", ".join(sorted(kept.keys() - known.keys())))
    return msgspec.convert(known, kind)


def _is_known(kind: type[AnswerProfile], name: str, value: object) -> bool:
    try:
        msgspec.convert({name: value}, kind)
    except msgspec.ValidationError:
        return False
    return True


@lru_cache(maxsize=MAX_NEW)  # a row is read again and again, but one log line is enough
def _log_unknown(owner: str, names: str) -> None:
    """Logs the names only: a value may contain words of a user."""
    logger.warning(
        "! %s: its stored %s is not supported by this version; the defaults are used",
        owner,
        names,
    )
