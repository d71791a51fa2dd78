"""Servers of several machines, as they announce themselves in the PostgreSQL that they share.

All times are those of the database: the clocks of the machines may differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from sqlalchemy import Connection, Float, cast, delete, func, or_, select
from sqlalchemy.dialects.postgresql import insert

from devices.registry.database import Database
from devices.registry.tables import machines, wake_claims

FORGET_AFTER_S = 600.0
"""Age in seconds of the last heartbeat after which the row of a server is deleted. A server that
was only cut off writes it again."""

MAX_ROOMS = 256
"Most rooms that a server announces. A house has some dozens."

MAX_DEVICES = 1000
"Most devices that a server announces, some 30 kB."


@dataclass(frozen=True, slots=True)
class MachineRow:
    """One server, as it has announced itself."""

    number: int
    url: str
    "Where clients reach it, such as `https://10.0.0.5:8080`."
    peer_address: str
    "`host:port` where the other servers reach it."
    fingerprint: str
    "SHA-256 of the certificate at `peer_address`, in lower-case hex."
    load: float
    "Share of its capacity that is used; 1: it is full."
    max_sessions: int
    takes_calls: bool = True
    "False: it is about to stop."
    rooms: frozenset[str] = frozenset()
    "Digests of the rooms in which devices report their wake words to it."
    devices: frozenset[str] = frozenset()
    "Ids of the devices that are connected to it."
    age_s: float = 0.0
    "Seconds since its last heartbeat, when the row was read."


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """All servers at one moment."""

    rows: Sequence[MachineRow]
    database_s: float
    "Time of the database when it was read, in seconds since 1970."
    read_s: float
    "`time.monotonic()` of this process at that moment."


class MachineRegistry:
    """The rows of all servers. Needs PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def is_shareable(self) -> bool:
        """True if the servers of several machines can use this database."""
        return self._database.driver.startswith("postgresql")

    async def exchange(self, own: MachineRow | None) -> MachineSnapshot:
        """Writes the row of this server, and reads those of all. `own`: None writes nothing.
        Raises StorageError."""

        def work(connection: Connection) -> MachineSnapshot:
            now = func.clock_timestamp()
            if own is not None:
                _write(connection, own)
            age = func.extract("epoch", now - machines.c.heartbeat)
            connection.execute(delete(machines).where(age > FORGET_AFTER_S))
            query = select(machines, cast(age, Float).label("age_s")).order_by(machines.c.number)
            rows = connection.execute(query).all()
            read_s = monotonic()
            database_s = connection.execute(
                select(cast(func.extract("epoch", now), Float))
            ).scalar_one()
            return MachineSnapshot(
                [
                    MachineRow(
                        row.number,
                        row.url,
                        row.peer_address,
                        row.fingerprint,
                        row.load,
                        row.max_sessions,
                        row.takes_calls,
                        frozenset(row.rooms),
                        frozenset(row.devices),
                        max(0.0, row.age_s),
                    )
                    for row in rows
                ],
                database_s,
                read_s,
            )

        return await self._database.run(work)

    async def withdraw(self, number: int) -> None:
        """Deletes the row of a server that stops. Raises StorageError."""

        def work(connection: Connection) -> None:
            connection.execute(delete(machines).where(machines.c.number == number))

        await self._database.run(work)

    async def claim_wake(self, room: str, device_id: str, life_s: float) -> bool:
        """Returns whether a device may answer a wake word in a room: no other device has claimed it
        in the last `life_s` seconds. Exactly one of several claims at the same moment succeeds.
        Raises StorageError."""

        def work(connection: Connection) -> bool:
            now = func.clock_timestamp()
            values = {"room": room, "device_id": device_id, "claimed": now}
            age = func.extract("epoch", now - wake_claims.c.claimed)
            claim = (
                insert(wake_claims)
                .values(values)
                .on_conflict_do_update(
                    index_elements=["room"],
                    set_={"device_id": device_id, "claimed": now},
                    where=or_(age > life_s, wake_claims.c.device_id == device_id),
                )
                .returning(wake_claims.c.room)
            )
            return connection.execute(claim).one_or_none() is not None

        return await self._database.run(work)


def _write(connection: Connection, own: MachineRow) -> None:
    values = {
        "number": own.number,
        "url": own.url,
        "peer_address": own.peer_address,
        "fingerprint": own.fingerprint,
        "load": own.load,
        "max_sessions": own.max_sessions,
        "takes_calls": own.takes_calls,
        "rooms": sorted(own.rooms)[:MAX_ROOMS],
        "devices": sorted(own.devices)[:MAX_DEVICES],
        "heartbeat": func.clock_timestamp(),
    }
    statement = insert(machines).values(values)
    changed = {name: value for name, value in values.items() if name != "number"}
    connection.execute(statement.on_conflict_do_update(index_elements=["number"], set_=changed))
