"""Directory of devices, with the actions of people: approve, edit, block, forget."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec
from sqlalchemy import Connection, delete

from core.errors import NotFound
from core.ports import Clock
from devices.fleet.directory import Device, DeviceClaims, DeviceProfile
from devices.fleet.pairing import (
    CODE_LIFE_S,
    SHOWS_CODE,
    PairingAttempts,
    RegistrySettings,
    check_shown,
    is_code_expired,
    new_code,
    read_code,
)
from devices.registry import identities, queries, tokens
from devices.registry.database import Database
from devices.registry.notifications import DeviceChangeChannel
from devices.registry.sanitize import cleaned
from devices.registry.tables import DeviceRow, devices, settings

LAST_SEEN_PRECISION = timedelta(seconds=60)
"Precision of `last_seen`: a device that comes every second must not cause a write every second."

T = TypeVar("T")


class DeviceRegistry:
    """Implements `DeviceDirectory`, and the changes that the page and the command line make.

    Every call may raise StorageError. Example:

        async with open_database(sqlite_url(file)) as database:
            registry = DeviceRegistry(database, clock, RegistrySettings())
            device = await registry.check_in(claims)
            await registry.approve(device.id, device.pairing_code)
    """

    def __init__(self, database: Database, clock: Clock, options: RegistrySettings) -> None:
        self._database, self._clock, self._settings = database, clock, options
        self._change_channel = DeviceChangeChannel(database)
        self._guesses = PairingAttempts()
        self._next_change = asyncio.Event()

    async def run(self) -> None:
        """Follows the changes that other servers make in the same database, where the database
        supports it."""
        await self._change_channel.receive(self._note_change)

    async def check_in(self, claims: DeviceClaims) -> Device:
        """Records the contact; see `DeviceDirectory`. Raises RequestError for a malformed hardware
        id."""
        claims, now = cleaned(claims), self._clock.wall()

        def work(connection: Connection) -> tuple[Device, bool]:
            row = before = queries.by_hardware(
                connection, claims.kind, claims.hardware_id, for_update=True
            )
            if row is None:
                queries.make_room(connection, now, self._settings.new_life)
                row = queries.insert_device(connection, claims, now)
            values = self._changed_columns(connection, row, claims, now)
            after = queries.update_device(connection, row.id, **values)
            has_changed = before is None or values.keys() - {"last_seen"} != set()
            if has_changed:
                self._change_channel.notify_others(connection)
            return identities.device_view_for(after, claims.identity), has_changed

        device, has_changed = await self._database.run(work)
        if has_changed:
            self._note_change()
        return device

    async def find(self, kind: str, hardware_id: str, identity: bytes = b"") -> Device | None:
        """See `DeviceDirectory`."""

        def work(connection: Connection) -> Device | None:
            row = queries.by_hardware(connection, kind, hardware_id)
            return row and identities.device_view_for(row, identity)

        return await self._database.run(work)

    async def by_id(self, device_id: str) -> Device:
        """Returns the device. Raises NotFound."""
        return await self._database.run(
            lambda connection: queries.device_of(queries.by_id(connection, device_id))
        )

    async def all_devices(self) -> Sequence[Device]:
        """Returns all devices, the longest known first."""
        return await self._database.run(queries.all_devices)

    async def in_area(self, area: str) -> Sequence[Device]:
        """See `DeviceDirectory`."""
        wanted = area.strip().casefold()
        known = await self.all_devices()
        return [
            device for device in known if device.standing == "approved" and is_in(device, wanted)
        ]

    async def issue_token(self, device_id: str, identity: bytes = b"") -> str:
        """See `DeviceDirectory`. NotFound also for a device that neither is approved nor waits."""
        token, now, life = tokens.new_token(), self._clock.wall(), self._settings.token_life

        def work(connection: Connection) -> None:
            row = queries.by_id(connection, device_id, for_update=True)
            waits = bool(
                identity and queries.code_of(row) and identities.pending_identity(row) == identity
            )
            if row.standing != "approved" and not waits:
                raise NotFound(
                    f"device {device_id!r} is neither approved nor waits under a code",
                    code="device_not_approved",
                )
            tokens.store(connection, token, row, identity, now, life)

        await self._database.run(work)
        return token

    async def device_with_key(self, token: str, identity: bytes = b"") -> Device | None:
        """See `DeviceDirectory`. An approved device without a known identity adopts this one."""
        if not token.startswith(tokens.PREFIX):
            return None
        now = self._clock.wall()

        def work(connection: Connection) -> Device | None:
            row = tokens.device_row_with_key(connection, token, identity, now)
            if row is not None and identity and row.identity is None:
                row = queries.by_id(connection, row.id, for_update=True)
                if row.identity is None and row.standing == "approved":
                    identities.log_adopted(row)
                    row = queries.update_device(connection, row.id, identity=identity)
            if (
                row is None
                or row.standing != "approved"
                or identities.has_other_identity(row, identity)
            ):
                return None
            return queries.device_of(row)

        return await self._database.run(work)

    async def waiting_device_with_key(self, token: str, identity: bytes) -> Device | None:
        """See `DeviceDirectory`."""
        now = self._clock.wall()

        def work(connection: Connection) -> Device | None:
            row = tokens.device_row_with_key(connection, token, identity, now)
            if (
                row is None
                or not queries.code_of(row)
                or identities.pending_identity(row) != identity
            ):
                return None
            device = identities.device_view_for(row, identity)
            return device if device.standing == "new" else None

        return await self._database.run(work) if token.startswith(tokens.PREFIX) else None

    def changed(self) -> asyncio.Event:
        """See `DeviceDirectory`."""
        return self._next_change

    async def pair(self, text: str) -> Device:
        """Approves the device that shows this code.

        Raises RequestError for text that is no code, NotFound pairing_code_unknown, Conflict
        pairing_code_expired or pairing_code_used, and OverloadedError too_many_guesses.
        """
        code, now = read_code(text), self._clock.wall()
        self._guesses.begin(self._clock.now())

        def work(connection: Connection) -> tuple[Device | None, bool]:
            row = queries.first(connection, devices.c.pairing_code == code, for_update=True)
            if row is None or row.pairing_code_expires <= now:
                return None, row is not None
            self._change_channel.notify_others(connection)
            values = identities.approval_columns(connection, row, identities.pending_identity(row))
            return queries.change(connection, row.id, **values), False

        device, is_expired = await self._database.run(work)
        if device is None:
            raise self._guesses.wrong_code_error(code, is_expired=is_expired)
        self._guesses.record_success(code)
        self._note_change()
        return device

    async def approve(self, device_id: str, code: str = "") -> Device:
        """Approves a device by its id, also a blocked one or one that came with another identity.

        code: the code that it shows, if any.
        Raises NotFound, RequestError for text that is no code, and Conflict pairing_code_needed,
        pairing_code_unknown or pairing_code_expired.
        """
        typed, now = read_code(code) if code else "", self._clock.wall()

        def work(connection: Connection) -> Device:
            row = queries.by_id(connection, device_id, for_update=True)
            check_shown(queries.code_of(row), row.pairing_code_expires, typed, now)
            values = identities.approval_columns(connection, row, identities.pending_identity(row))
            return queries.change(connection, device_id, **values)

        return await self._change(work)

    async def block(self, device_id: str) -> Device:
        """Blocks a device: it is not served any more, and its keys are void. Raises NotFound."""

        def work(connection: Connection) -> Device:
            queries.by_id(connection, device_id, for_update=True)
            tokens.revoke(connection, device_id)
            return queries.change(connection, device_id, standing="blocked", **queries.NO_CODE)

        return await self._change(work)

    async def edit(
        self,
        device_id: str,
        *,
        name: str | None = None,
        area: str | None = None,
        profile: Callable[[DeviceProfile], DeviceProfile] | None = None,
    ) -> Device:
        """Changes a device. None leaves a value as it is; `profile` maps the old profile to a new
        one.

        Raises NotFound.
        """
        given = {"name": name, "area": area}

        def work(connection: Connection) -> Device:
            values: dict[str, object] = {
                column: value for column, value in given.items() if value is not None
            }
            if profile is not None:
                row = queries.by_id(connection, device_id, for_update=True)
                values["profile"] = msgspec.to_builtins(profile(queries.profile_of(row)))
            return queries.change(connection, device_id, **values)

        return await self._change(work)

    async def forget(self, device_id: str) -> None:
        """Deletes a device with its keys and settings, as if it had never connected. Raises
        NotFound."""

        def work(connection: Connection) -> None:
            queries.by_id(connection, device_id, for_update=True)
            tokens.revoke(connection, device_id)
            connection.execute(delete(settings).where(settings.c.owner == device_id))
            connection.execute(delete(devices).where(devices.c.id == device_id))

        await self._change(work)

    async def _change(self, work: Callable[[Connection], T]) -> T:
        def work_and_notify(connection: Connection) -> T:
            done = work(connection)
            self._change_channel.notify_others(connection)
            return done

        done = await self._database.run(work_and_notify)
        self._note_change()
        return done

    def _changed_columns(
        self, connection: Connection, row: DeviceRow, claims: DeviceClaims, now: datetime
    ) -> dict[str, object]:
        """Returns the columns that a contact changes. A value that the device does not report is
        left as it is."""
        identity, is_trusted = claims.identity, self._settings.rule.approves(claims.address)
        is_code_free = is_code_expired(row.pairing_code_expires, now)
        if not (is_trusted or is_code_free) and identities.is_late(row, identity):
            return {}  # otherwise any client could void the code that a person is just typing
        if identities.has_other_identity(row, identity) and not is_trusted:
            return {"claimed_identity": identity, **_code(now)} if is_code_free else {}
        reported_texts = {
            "board": claims.board,
            "firmware": claims.firmware,
            "address": claims.address,
        }
        reported = (
            reported_texts
            if row.standing == "blocked"
            else {**reported_texts, "identity": identity}
        )
        values: dict[str, object] = {
            name: value for name, value in reported.items() if value and value != getattr(row, name)
        }
        is_changed = row.identity is not None and "identity" in values
        if row.standing == "approved" and row.identity is None and "identity" in values:
            identities.log_adopted(row)
        if is_trusted and (row.standing == "new" or is_changed):
            values |= identities.approval_columns(connection, row, identity or row.identity)
        elif row.standing == "new" and is_code_free and row.kind in SHOWS_CODE:
            values |= _code(now)
        elif row.claimed_identity is not None and is_code_free:
            values |= queries.NO_CODE  # the device that came in its place did not come back
        if values or abs(now - row.last_seen) >= LAST_SEEN_PRECISION:
            values["last_seen"] = now
        return values

    def _note_change(self) -> None:
        self._next_change.set()
        self._next_change = asyncio.Event()


def is_in(device: Device, area: str) -> bool:
    """Returns True if the device is in this area; case and outer spaces do not matter."""
    return device.area.strip().casefold() == area.strip().casefold()


def _code(now: datetime) -> dict[str, object]:
    expires = now + timedelta(seconds=CODE_LIFE_S)
    return {"pairing_code": new_code(), "pairing_code_expires": expires}
