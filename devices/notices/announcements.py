"""Delivery of announcements: to the device that asked, to another device in its room, or later. An
announcement may have to wait, because boards have no connection while they are idle."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.errors import EarshotError
from core.ports import Clock
from devices.fleet.directory import Device, DeviceDirectory
from devices.fleet.presence import ConnectedDevice, DeviceNotification, Presence
from pipeline.conversation.conversation import Conversations

logger = logging.getLogger(__name__)

WAIT_S = 900.0
"""Longest wait of an announcement, in seconds. A timer that rang 15 minutes ago is still worth
announcing; a timer of this morning is not."""

MAX_WAITING_PER_TARGET = 8
"""Limit per device or area; the oldest are dropped. More announcements at once would not help the
user."""

MAX_WAITING = 500
"Limit for all devices and areas together."

SETTLE_S = 0.5
"""Pause after a device connected, in seconds. A new device first sends its own requests. A device
that refuses announcements and changes its state often is not asked again at once."""

NOTIFY_TIMEOUT_S = 20.0
"Longest wait for a device to accept an announcement. After that the announcement goes on waiting."


@dataclass(frozen=True, slots=True)
class PendingNotification:
    """An announcement that could not be delivered yet."""

    notice: DeviceNotification
    device_id: str
    "Id of the device that it is for; empty: for any device in the area."
    area: str
    "Area in which another device may play it; empty: no other device may."
    until: float
    "Time after which it is dropped, on the scale of Clock.now()."


class Announcements:
    """Delivers announcements, such as those of timers; implements `Announcer`.

    `run` must be running: it delivers the announcements that wait.
    """

    def __init__(
        self,
        conversations: Conversations,
        directory: DeviceDirectory,
        presence: Presence,
        clock: Clock,
    ) -> None:
        self._conversations, self._directory = conversations, directory
        self._presence, self._clock = presence, clock
        self._waiting: list[PendingNotification] = []
        self._next_change = asyncio.Event()

    async def announce(self, conversation_id: str, text: str) -> bool:
        """Announces `text` in the open conversation, else on its last device, else in its room.

        If none of these works, the announcement waits for the device. Returns False when there is
        no device to wait for either.
        """
        if await self._conversations.announce(conversation_id, text):
            return True
        place, notice = self._conversations.place_of(conversation_id), DeviceNotification(text=text)
        if await self._announce(place.device_id, place.area, notice):
            return True
        if place.device_id:
            self._keep(notice, place.device_id, place.area)
        return bool(place.device_id)

    async def to_device(self, device: Device, notice: DeviceNotification) -> bool:
        """Announces on this device only. Returns False when the announcement has to wait for the
        device."""
        if await self._announce(device.id, "", notice):
            return True
        self._keep(notice, device.id, "")
        return False

    async def to_area(self, area: str, notice: DeviceNotification) -> Sequence[str]:
        """Announces on the connected devices of the area; returns the ids of those that accepted.

        If none accepts, the announcement waits for the first device of the area.
        """
        ids = [device.id for device in await self._directory.in_area(area)]
        async with asyncio.TaskGroup() as tasks:
            attempts = {
                device_id: tasks.create_task(self._notify(device_id, notice)) for device_id in ids
            }
        accepted = [device_id for device_id, task in attempts.items() if task.result()]
        if not accepted:
            self._keep(notice, "", area)
        return accepted

    def waiting_by_device(self) -> Mapping[str, int]:
        """Returns how many announcements wait for each device, by device id."""
        counts: dict[str, int] = {}
        for pending in self._waiting:
            if pending.device_id:
                counts[pending.device_id] = counts.get(pending.device_id, 0) + 1
        return counts

    def waiting_in(self, area: str) -> int:
        """Returns how many announcements wait for any device of this area."""
        wanted = area.strip().casefold()
        return sum(
            1
            for pending in self._waiting
            if not pending.device_id and _folded(pending.area) == wanted
        )

    def forget(self, device_id: str) -> None:
        """Drops the announcements that wait for this device."""
        self._waiting = [pending for pending in self._waiting if pending.device_id != device_id]
        self._note_change()

    def changed(self) -> asyncio.Event:
        """Returns the event that is set when the list of waiting announcements next changes."""
        return self._next_change

    async def run(self) -> None:
        """Delivers waiting announcements when devices connect or become idle. Runs until
        cancelled."""
        while True:
            device_change, list_change = self._presence.changed(), self.changed()
            await self._deliver_waiting()
            expiry_times = [pending.until for pending in self._waiting]
            timeout_s = max(0.0, min(expiry_times) - self._clock.now()) if expiry_times else None
            if await wait_for_any(device_change, list_change, timeout_s=timeout_s):
                await asyncio.sleep(SETTLE_S)

    async def _deliver_waiting(self) -> None:
        """Delivers to all targets at the same time, so that a slow device delays no other. Each
        target gets its announcements in order."""
        targets = {_target(pending) for pending in self._waiting}
        async with asyncio.TaskGroup() as tasks:
            for target in targets:
                tasks.create_task(self._deliver_to(target))

    async def _deliver_to(self, target: tuple[str, str]) -> None:
        for pending in [pending for pending in self._waiting if _target(pending) == target]:
            if not any(other is pending for other in self._waiting):
                continue  # removed meanwhile, e.g. because its device was forgotten
            is_expired = pending.until <= self._clock.now()
            if is_expired or await self._announce(pending.device_id, pending.area, pending.notice):
                self._waiting = [other for other in self._waiting if other is not pending]
                self._note_change()
                outcome = "expired" if is_expired else "was delivered"
                logger.info("= an announcement for %s %s", pending.device_id or "an area", outcome)

    async def _announce(self, device_id: str, area: str, notice: DeviceNotification) -> bool:
        """Announces on the device, or on another device in the area."""
        if device_id and await self._notify(device_id, notice):
            return True
        if not area or not self._presence.ids():
            return False
        try:
            others = [
                device.id
                for device in await self._directory.in_area(area)
                if device.id != device_id
            ]
        except EarshotError as error:
            logger.warning("! the other devices in the room are unknown: %s", error.code)
            return False
        for other in others:
            if await self._notify(other, notice):
                return True
        return False

    async def _notify(self, device_id: str, notice: DeviceNotification) -> bool:
        live: ConnectedDevice | None = self._presence.find(device_id)
        if live is None:
            return False
        try:
            async with asyncio.timeout(NOTIFY_TIMEOUT_S):
                return await live.notify(notice)
        except (EarshotError, ConnectionError, TimeoutError) as error:
            code = error.code if isinstance(error, EarshotError) else "device_unreachable"
            self._presence.note_error(device_id, code)
            return False

    def _keep(self, notice: DeviceNotification, device_id: str, area: str) -> None:
        """Lets the announcement wait; drops the oldest ones above the limits."""
        until = self._clock.now() + WAIT_S
        target = (device_id, "" if device_id else _folded(area))
        same = [pending for pending in self._waiting if _target(pending) == target]
        too_many = same[: max(0, len(same) + 1 - MAX_WAITING_PER_TARGET)]
        self._waiting = [
            pending for pending in self._waiting if not any(pending is old for old in too_many)
        ]
        self._waiting = [
            *self._waiting[-MAX_WAITING + 1 :],
            PendingNotification(notice, device_id, area, until),
        ]
        self._note_change()

    def _note_change(self) -> None:
        self._next_change.set()
        self._next_change = asyncio.Event()


async def wait_for_any(*events: asyncio.Event, timeout_s: float | None = None) -> bool:
    """Waits until one of the events is set. Returns False when the time is up before that."""
    async with asyncio.TaskGroup() as tasks:
        waits = [tasks.create_task(event.wait()) for event in events]
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    return bool(done)


def _folded(area: str) -> str:
    return area.strip().casefold()


def _target(pending: PendingNotification) -> tuple[str, str]:
    return pending.device_id, "" if pending.device_id else _folded(pending.area)
