"""Wake words of connected devices, and which device was told to listen."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.ports import Clock
from devices.arbitration import Arbitration, ArbitrationVerdict
from devices.willow.was.connected_devices import WillowDevices
from devices.willow.was.socket.connection import WillowConnection
from firmware_protocol.willow.messages import WakeResult

FRESH_S = 15.0
"""A wake word belongs to the utterance that follows it within this. The firmware stops listening
5 s after it (`stream_timeout`), and sends nothing for longer than it listens."""

NO_ROOM = ""
"Devices without a room are one group, as all devices are for WAS."


@dataclass(slots=True)
class _WakeEvent:
    at: float
    decided: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class WakeArbiter:
    """`groups`: areas that hear each other, each a tuple; every other area is one for itself.
    `run` must be running: it decides where not all have spoken."""

    def __init__(
        self, roster: WillowDevices, clock: Clock, groups: Iterable[tuple[str, ...]]
    ) -> None:
        self._roster, self._clock = roster, clock
        self._group: Mapping[str, str] = {
            _room(area): _room(areas[0]) for areas in groups for area in areas
        }
        self._arbitration = Arbitration()
        self._latest: dict[str, _WakeEvent] = {}
        "By device."
        self._woken = asyncio.Event()

    async def run(self) -> None:
        while True:
            due = self._arbitration.due()
            wait_s = None if due is None else max(0.0, due - self._clock.now())
            try:
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            except TimeoutError:
                self._tell(self._arbitration.tick(self._clock.now()))
            self._woken.clear()

    def heard(self, connection: WillowConnection, volume_db: float | None) -> None:
        """`wake_start`: it listens from now on, until told otherwise."""
        device, now = connection.device, self._clock.now()
        last = self._latest.get(device.id)
        group = self._group_of(connection)
        wake = _WakeEvent(now)
        known = {one.device.id for one in self._contenders(group)} | {device.id}
        verdicts = self._arbitration.heard(group, device.id, volume_db, known, now)
        if last is not None and not last.decided.done():  # decided by its own next wake word
            verdicts = self._settle(verdicts, device.id, last)
        self._latest[device.id] = wake
        connection.note("listening")
        self._tell(verdicts)
        self._woken.set()

    def ended(self, connection: WillowConnection) -> None:
        """`wake_end`."""
        if connection.doing == "listening":
            connection.note("idle")

    def left(self, connection: WillowConnection) -> None:
        """Its socket went, or it was moved to another room."""
        device_id, group = connection.device.id, self._group_of(connection)
        if self._roster.find(device_id) not in (None, connection):
            return  # a newer socket is the device
        known = {one.device.id for one in self._contenders(group)} - {device_id}
        self._tell(self._arbitration.left(group, device_id, known))
        wake = self._latest.pop(device_id, None)
        if wake is not None and not wake.decided.done():
            wake.decided.set_result(False)

    def gave_up(self, connection: WillowConnection) -> None:
        """Its speech broke off, or never began to be any: another may be woken at once."""
        self._arbitration.gave_up(self._group_of(connection), connection.device.id)

    def forget(self, device_id: str) -> None:
        """What was learnt of a device that is no longer known."""
        self._arbitration.forget(device_id)

    def is_awake(self, device_id: str) -> bool:
        """Whether what this device sends next belongs to a wake word that it told of."""
        wake = self._latest.get(device_id)
        return wake is not None and self._clock.now() <= wake.at + FRESH_S

    async def may_speak(self, device_id: str) -> bool:
        """Whether what this device sends now is to be heard. Waits for the decision, 200 ms at
        most. A device without a wake word (a button, multiwake off) may always."""
        wake = self._latest.get(device_id)
        if wake is None or not self.is_awake(device_id):
            return True
        won = await asyncio.shield(wake.decided)
        if self._latest.get(device_id) is wake:
            del self._latest[device_id]  # what it sends next has another reason
        return won

    def _settle(
        self, verdicts: list[ArbitrationVerdict], device_id: str, last: _WakeEvent
    ) -> list[ArbitrationVerdict]:
        own = next((one for one in verdicts if one.device == device_id), None)
        last.decided.set_result(own is not None and own.won)
        return [one for one in verdicts if one is not own]

    def _tell(self, verdicts: Iterable[ArbitrationVerdict]) -> None:
        for verdict in verdicts:
            wake = self._latest.get(verdict.device)
            if wake is not None and not wake.decided.done():
                wake.decided.set_result(verdict.won)
            connection = self._roster.find(verdict.device)
            if connection is not None:
                connection.tell(WakeResult(verdict.won))
                if not verdict.won:
                    connection.note("idle")

    def _contenders(self, group: str) -> list[WillowConnection]:
        """Those that tell of their wake words."""
        return [one for one in self._roster.all() if one.is_multiwake and self._is_in(one, group)]

    def _is_in(self, connection: WillowConnection, group: str) -> bool:
        return self._group_of(connection) == group

    def _group_of(self, connection: WillowConnection) -> str:
        """Of its rooms and its wake word: nobody waits for a device that listens for another."""
        room = _room(connection.device.area)
        return f"{connection.config.get('wake_word', '')} {self._group.get(room, room)}"


def _room(area: str) -> str:
    return " ".join(area.split()).casefold() or NO_ROOM
