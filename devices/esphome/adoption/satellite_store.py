"""Satellites that were adopted on the page: where they are and their keys, kept in the registry."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import ValidationError, convert, to_builtins

from devices.esphome.settings import EspHomeAddress
from devices.fleet.directory import Device, DeviceSettingsStore

SETTING = "esphome.satellite"
"Name of the value that the registry keeps with an adopted device, and deletes with it."


class AdoptedSatellites:
    """The adopted satellites. Every call may raise StorageError."""

    def __init__(
        self, store: DeviceSettingsStore, known: Callable[[], Awaitable[Sequence[Device]]]
    ) -> None:
        """known: returns all devices of the registry."""
        self._store, self._known = store, known
        self._next_change = asyncio.Event()
        self.changing = asyncio.Lock()
        """Held while a satellite is adopted. Its key is kept before the satellite has it, so a
        connection has to wait until then."""

    async def all(self) -> Sequence[EspHomeAddress]:
        """Returns those that may be served: blocked ones are left out."""
        found = [
            await self._of(one)
            for one in await self._known()
            if one.kind == "esphome" and one.standing == "approved"
        ]
        return [address for address in found if address is not None]

    async def keep(self, device_id: str, address: EspHomeAddress) -> None:
        """Keeps where a device is, and its key. Raises NotFound."""
        await self._store.write(SETTING, to_builtins(address), device_id)
        self._next_change.set()
        self._next_change = asyncio.Event()

    def changed(self) -> asyncio.Event:
        """Returns the event that is set when a satellite is next adopted."""
        return self._next_change

    async def _of(self, device: Device) -> EspHomeAddress | None:
        value = await self._store.read(SETTING, device.id)
        try:
            return None if value is None else convert(value, EspHomeAddress)
        except ValidationError:  # of a newer version
            return None
