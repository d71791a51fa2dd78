"""Decides which server of several machines answers. No I/O and no clock: `link.py` keeps the table
up to date, and `forward.py` asks it."""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from core.conversation.ids import machine_of
from devices.registry.machines import MachineRow, MachineSnapshot

HEARTBEAT_S = 2.0
"Interval at which a server writes its row and reads those of the others, in seconds."

ENTRY_LIFE_S = 10.0
"""Age in seconds of the last heartbeat after which a server gets nothing more: it has missed four,
or the database has not told us for as long. It is longer than one statement may take (5 s)."""

MUCH_BUSIER = 0.25
"""Difference of load from which on a call is given to another server. A smaller one is not worth a
redirect: the load that is known of others is up to two heartbeats old."""

FULL = 1.0
"Load of a server that has no room."


class MachineTable:
    """All servers, as this one knows them."""

    def __init__(self, own_number: int) -> None:
        self.own_number = own_number
        self._rows: Sequence[MachineRow] = ()
        self._read_s = 0.0
        self._clock_offset_s: float | None = None
        self._given: Counter[int] = Counter()
        "Calls that were given to each server since the table was read."
        self._away_s: dict[int, float] = {}
        "When this server could not connect to another one, by its number."

    def update(self, snapshot: MachineSnapshot) -> None:
        """Takes over what the database says."""
        self._rows = [row for row in snapshot.rows if row.age_s <= ENTRY_LIFE_S]
        self._read_s = snapshot.read_s
        self._clock_offset_s = snapshot.database_s - snapshot.read_s
        self._given.clear()

    def shared_time_s(self, now_s: float) -> float | None:
        """Returns the database's time for `now_s`, which is `time.monotonic()` of this process. The
        clocks of the machines do not count. None: the database has never been reached."""
        return None if self._clock_offset_s is None else now_s + self._clock_offset_s

    @property
    def others(self) -> Sequence[MachineRow]:
        """The other servers. While the database is away, those that it named last."""
        return [row for row in self._rows if row.number != self.own_number]

    def find(self, number: int | None) -> MachineRow | None:
        """Returns the other server with this number. None: there is none, or it is this one."""
        return next((row for row in self.others if row.number == number), None)

    def named(self, names: Sequence[str]) -> MachineRow | None:
        """Returns the other server that one of these ids or secrets names. What a server that has
        ended has made is nowhere: then None, and this server answers that there is none."""
        for name in names:
            if (row := self.find(machine_of(name))) is not None:
                return row
        return None

    def with_device(self, device_id: str) -> MachineRow | None:
        """Returns the other server to which a device is connected; None: none that is known."""
        return next((row for row in self.others if device_id in row.devices), None)

    def lighter(self, own_load: float, now_s: float, *, drains: bool = False) -> MachineRow | None:
        """Returns the server that answers a new call in place of this one; None: this one answers.

        own_load: share of the own capacity that is used now. drains: this server is about to stop.
        """
        elapsed_s = now_s - self._read_s
        takers = [
            row
            for row in self.others
            if row.takes_calls
            and row.age_s + elapsed_s <= ENTRY_LIFE_S
            and self._load(row) < FULL
            and now_s - self._away_s.get(row.number, -ENTRY_LIFE_S) >= ENTRY_LIFE_S
        ]
        best = min(takers, key=lambda row: (self._load(row), row.number), default=None)
        if best is None:
            return None
        is_much_busier = own_load - self._load(best) >= MUCH_BUSIER
        return best if drains or own_load >= FULL or is_much_busier else None

    def count_given(self, row: MachineRow) -> None:
        """Notes that a call was given to a server, whose load in the table is older."""
        self._given[row.number] += 1

    def note_away(self, row: MachineRow, now_s: float) -> None:
        """Notes that a server cannot be reached from here: it gets no call for ENTRY_LIFE_S."""
        self._away_s[row.number] = now_s

    def room_owner(self, room: str) -> MachineRow | None:
        """Returns the server that decides about wake words in a room; None: this one. All servers
        with the same table name the same one, and another server that comes or goes moves only
        its own rooms. `room`: its digest."""
        numbers = {row.number for row in self._rows} | {self.own_number}
        return self.find(max(numbers, key=lambda number: _weight(room, number)))

    def machines_in(self, room: str) -> frozenset[int]:
        """Returns the numbers of the other servers to which devices of a room are connected."""
        return frozenset(row.number for row in self.others if room in row.rooms)

    def _load(self, row: MachineRow) -> float:
        return row.load + self._given[row.number] / max(1, row.max_sessions)


def _weight(room: str, number: int) -> bytes:
    return sha256(f"{number} {room}".encode()).digest()
