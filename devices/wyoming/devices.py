"""Devices behind connections: Home Assistant opens one connection per request, and is one
device."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from devices.fleet.presence import DeviceActivity, DeviceNotification, Presence
from devices.wyoming.connection import WyomingConnection


class WyomingDevice:
    """Implements `ConnectedDevice` with all open connections of one device. It accepts no
    announcements or commands."""

    timing: Mapping[str, float] | None = None

    def __init__(self) -> None:
        self.connections: dict[WyomingConnection, asyncio.Task[None] | None] = {}
        "Open connections, each with the task that serves it."
        self.presence_entry = ExitStack()
        "Closed together with the last connection."

    @property
    def activity(self) -> DeviceActivity:
        found = {connection.activity for connection in self.connections}
        busy: tuple[DeviceActivity, ...] = ("speaking", "thinking", "listening")
        return next((activity for activity in busy if activity in found), "idle")

    async def notify(self, notice: DeviceNotification) -> bool:
        return False

    async def restart(self) -> bool:
        return False

    async def update(self, firmware: str) -> bool:
        return False

    async def close(self) -> None:
        """Closes all connections; the work in progress is cancelled."""
        for task in self.connections.values():
            if task is not None:
                task.cancel()


class WyomingDevices:
    """The connected approved devices, by the directory's id."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._devices: dict[str, WyomingDevice] = {}

    @contextmanager
    def connected(self, device_id: str, connection: WyomingConnection) -> Iterator[None]:
        """Counts the device as connected while the `with` block runs, in the task that serves the
        connection."""
        device = self._devices.get(device_id)
        if device is None:
            device = self._devices[device_id] = WyomingDevice()
            device.presence_entry.enter_context(self._presence.connected(device_id, device))
        device.connections[connection] = asyncio.current_task()
        try:
            yield
        finally:
            del device.connections[connection]
            if not device.connections:
                del self._devices[device_id]
                device.presence_entry.close()
