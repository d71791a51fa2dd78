"""Devices and their settings in memory, as the doors see them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.errors import NotFound
from devices.fleet.directory import ApprovalState, Device, DeviceClaims, DeviceKind


class Known:
    """A `Directory` and a `Settings`."""

    def __init__(self, standing: ApprovalState = "approved") -> None:
        self.standing: ApprovalState = standing
        "Of devices that come for the first time."
        self.devices: dict[str, Device] = {}
        self.contacts: list[DeviceClaims] = []
        self.values: dict[tuple[str, str], Any] = {}
        self.rooms: dict[str, str] = {}
        "MAC -> room, for those that are to come."
        self._changed = asyncio.Event()

    async def check_in(self, contact: DeviceClaims) -> Device:
        self.contacts.append(contact)
        device = self.devices.get(contact.hardware_id)
        if device is None:
            device = Device(
                id=f"dev_{len(self.devices)}",
                kind=contact.kind,
                hardware_id=contact.hardware_id,
                name=contact.name,
                area=self.rooms.get(contact.hardware_id, ""),
                standing=self.standing,
                board=contact.board,
                firmware=contact.firmware,
                address=contact.address,
            )
            self.devices[contact.hardware_id] = device
            self._note()
        return device

    async def find(
        self, kind: DeviceKind, hardware_id: str, identity: bytes = b""
    ) -> Device | None:
        return self.devices.get(hardware_id)

    async def issue_token(self, device_id: str, identity: bytes = b"") -> str:
        raise NotFound("no keys here")

    async def device_with_key(self, token: str, identity: bytes = b"") -> Device | None:
        return None

    async def waiting_device_with_key(self, token: str, identity: bytes) -> Device | None:
        return None

    async def in_area(self, area: str) -> Sequence[Device]:
        return [one for one in self.devices.values() if one.area == area]

    def changed(self) -> asyncio.Event:
        return self._changed

    def change(self, hardware_id: str, **values: Any) -> None:
        self.devices[hardware_id] = replace(self.devices[hardware_id], **values)
        self._note()

    async def edit(
        self, device_id: str, *, name: str | None = None, area: str | None = None
    ) -> Device:
        mac = next(mac for mac, one in self.devices.items() if one.id == device_id)
        given = {"name": name, "area": area}
        self.change(mac, **{key: value for key, value in given.items() if value is not None})
        return self.devices[mac]

    def forget(self, hardware_id: str) -> None:
        del self.devices[hardware_id]
        self._note()

    async def read(self, key: str, device_id: str = "") -> Any:
        return self.values.get((key, device_id))

    async def write(self, key: str, value: Any, device_id: str = "") -> None:
        self.values[key, device_id] = value

    def _note(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
