"""Arbitration between connected devices; remembers which device may listen."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.ports import Clock
from devices.fleet.arbitration import Arbitration, ArbitrationVerdict
from devices.wake_claims import WakeClaims
from devices.willow.was.connected_devices import WillowDevices
from devices.willow.was.socket.connection import WillowConnection
from firmware_protocol.willow.messages import WakeResult

FRESH_S = 15.0
"""A wake word belongs to an utterance that begins within this time. The firmware stops listening 5
s after the wake word (`stream_timeout`), and sends nothing for longer than it listens."""

NO_ROOM = ""
"Devices without a room form one group, as all devices do in WAS."


@dataclass(slots=True)
class _WakeEvent:
    """One reported wake word. decided: its verdict, True for the winner."""

    at: float
    group: str = ""
    level_db: float | None = None
    decided: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class WakeArbiter:
    """Decides which device of a group listens after a wake word.

    `run` must be running: it decides when not all devices have reported.
    groups: areas in which devices detect the same wake word, each a tuple; every other area is a
        group.
    claims: whether a winner may answer, where other servers may answer, too.
    """

    def __init__(
        self,
        connected_devices: WillowDevices,
        clock: Clock,
        groups: Iterable[tuple[str, ...]],
        claims: WakeClaims,
    ) -> None:
        self._connected_devices, self._clock, self._claims = connected_devices, clock, claims
        claims.groups = self._groups
        self._tasks: asyncio.TaskGroup | None = None
        "Claims that wait for an answer; None: `run` is not running."
        self._group_by_area: Mapping[str, str] = {
            _room_of(area): _room_of(areas[0]) for areas in groups for area in areas
        }
        self._arbitration = Arbitration()
        self._latest: dict[str, _WakeEvent] = {}
        "Latest wake word by device id."
        self._contests_changed = asyncio.Event()

    async def run(self) -> None:
        """Decides contests whose window is over, until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._decide_due()
        finally:
            self._tasks = None

    async def _decide_due(self) -> None:
        while True:
            due = self._arbitration.due()
            wait_s = None if due is None else max(0.0, due - self._clock.now())
            try:
                async with asyncio.timeout(wait_s):
                    await self._contests_changed.wait()
            except TimeoutError:
                self._deliver(self._arbitration.tick(self._clock.now()))
            self._contests_changed.clear()

    def wake_started(self, connection: WillowConnection, volume_db: float | None) -> None:
        """Handles `wake_start`: the device listens from now on, until it gets another verdict."""
        device, now = connection.device, self._clock.now()
        last = self._latest.get(device.id)
        group = self._group_of(connection)
        wake = _WakeEvent(now, group, volume_db)
        known = {contender.device.id for contender in self._contenders(group)} | {device.id}
        verdicts = self._arbitration.report(group, device.id, volume_db, known, now)
        # this new wake word decides the device's former one
        if last is not None and not last.decided.done():
            verdicts = self._settle(verdicts, device.id, last)
        self._latest[device.id] = wake
        connection.set_activity("listening")
        self._deliver(verdicts)
        self._contests_changed.set()

    def wake_ended(self, connection: WillowConnection) -> None:
        """Handles `wake_end`."""
        if connection.activity == "listening":
            connection.set_activity("idle")

    def device_left(self, connection: WillowConnection) -> None:
        """Removes a device whose socket closed or that was moved to another room."""
        device_id, group = connection.device.id, self._group_of(connection)
        if self._connected_devices.find(device_id) not in (None, connection):
            return  # a newer socket represents the device
        known = {contender.device.id for contender in self._contenders(group)} - {device_id}
        self._deliver(self._arbitration.remove(group, device_id, known))
        wake = self._latest.pop(device_id, None)
        if wake is not None and not wake.decided.done():
            wake.decided.set_result(False)

    def give_up(self, connection: WillowConnection) -> None:
        """Ends the contest of a device whose speech broke off or never began: another may be woken
        at once."""
        self._arbitration.give_up(self._group_of(connection), connection.device.id)

    def forget(self, device_id: str) -> None:
        """Drops the level statistics of a device that is no longer known."""
        self._arbitration.forget(device_id)

    def is_awake(self, device_id: str) -> bool:
        """Returns True if the next speech of this device belongs to a wake word that it
        reported."""
        wake = self._latest.get(device_id)
        return wake is not None and self._clock.now() <= wake.at + FRESH_S

    async def should_recognise(self, device_id: str) -> bool:
        """Returns whether the present speech of this device is to be recognised.

        Waits for the decision, at most 200 ms. A device without a reported wake word (a button,
        multiwake off) may always speak.
        """
        wake = self._latest.get(device_id)
        if wake is None or not self.is_awake(device_id):
            return True
        won = await asyncio.shield(wake.decided)
        if self._latest.get(device_id) is wake:
            del self._latest[device_id]  # its next speech does not belong to this wake word
        return won

    def _settle(
        self, verdicts: list[ArbitrationVerdict], device_id: str, latest: _WakeEvent
    ) -> list[ArbitrationVerdict]:
        own = next((verdict for verdict in verdicts if verdict.device == device_id), None)
        latest.decided.set_result(own is not None and own.won)
        return [verdict for verdict in verdicts if verdict is not own]

    def _deliver(self, verdicts: Iterable[ArbitrationVerdict]) -> None:
        for verdict in verdicts:
            wake = self._latest.get(verdict.device)
            if verdict.won and wake is not None and self._claims.is_shared and self._tasks:
                self._tasks.create_task(self._claim(verdict.device, wake), name="wake-claim")
            else:
                self._announce(verdict, wake)

    async def _claim(self, device_id: str, wake: _WakeEvent) -> None:
        """Asks whether the device that won here may answer, and tells it."""
        is_granted = await self._claims.claim(wake.group, device_id, wake.level_db)
        self._announce(ArbitrationVerdict(device_id, is_granted), wake)

    def _announce(self, verdict: ArbitrationVerdict, wake: _WakeEvent | None) -> None:
        """Tells a device its verdict. `wake`: its wake word; None: it has left."""
        if wake is not None and not wake.decided.done():
            wake.decided.set_result(verdict.won)
        connection = self._connected_devices.find(verdict.device)
        if connection is not None:
            connection.send(WakeResult(verdict.won))
            if not verdict.won:
                connection.set_activity("idle")

    def _groups(self) -> set[str]:
        """Returns the groups of the connected devices that report their wake words."""
        return {self._group_of(one) for one in self._connected_devices.all() if one.is_multiwake}

    def _contenders(self, group: str) -> list[WillowConnection]:
        """Returns the devices of the group that report their wake words."""
        return [
            connection
            for connection in self._connected_devices.all()
            if connection.is_multiwake and self._is_in(connection, group)
        ]

    def _is_in(self, connection: WillowConnection, group: str) -> bool:
        return self._group_of(connection) == group

    def _group_of(self, connection: WillowConnection) -> str:
        """Returns the group: its areas and its wake word. Devices with different wake words do not
        compete."""
        room = _room_of(connection.device.area)
        return f"{connection.config.get('wake_word', '')} {self._group_by_area.get(room, room)}"


def _room_of(area: str) -> str:
    return " ".join(area.split()).casefold() or NO_ROOM
