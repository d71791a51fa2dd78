"""The devices behind connections: Home Assistant makes one for each request, and is one device."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from devices.presence import DeviceActivity, DeviceNotification, Presence
from devices.wyoming.connection import WyomingConnection


class WyomingDevice:
    """A `Live` of presence: every open connection of one device. Nothing can be told to it."""

    timing: Mapping[str, float] | None = None

    def __init__(self) -> None:
        self.open: dict[WyomingConnection, asyncio.Task[None] | None] = {}
        "With the task that serves it."
        self.stay = ExitStack()
        "Left with the last one."

    @property
    def doing(self) -> DeviceActivity:
        found = {one.doing for one in self.open}
        busy: tuple[DeviceActivity, ...] = ("speaking", "thinking", "listening")
        return next((one for one in busy if one in found), "idle")

    async def notify(self, notice: DeviceNotification) -> bool:
        return False

    async def restart(self) -> bool:
        return False

    async def update(self, firmware: str) -> bool:
        return False

    async def close(self) -> None:
        """What it asked last is not done any more, either."""
        for task in self.open.values():
            if task is not None:
                task.cancel()


class WyomingDevices:
    """Those of approved devices, by the directory's id."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._here: dict[str, WyomingDevice] = {}

    @contextmanager
    def here(self, device_id: str, connection: WyomingConnection) -> Iterator[None]:
        """While the body runs, in the task that serves the connection."""
        guest = self._here.get(device_id)
        if guest is None:
            guest = self._here[device_id] = WyomingDevice()
            guest.stay.enter_context(self._presence.here(device_id, guest))
        guest.open[connection] = asyncio.current_task()
        try:
            yield
        finally:
            del guest.open[connection]
            if not guest.open:
                del self._here[device_id]
                guest.stay.close()
