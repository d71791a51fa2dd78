"""Which approved devices are connected, and whose requests come from where."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from core.ports import Clock
from devices.ip_allowlist import address_of
from devices.willow.was.socket.connection import WillowConnection

GRACE_S = 600.0
"""After its socket went: a device hangs up before it fetches its firmware, and one with bad Wi-Fi
may still be fetching speech."""

MAX_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class _DepartedDevice:
    hardware_id: str
    until: float
    "Clock.now() from which on requests from its address are nobody's."


class WillowDevices:
    def __init__(self, clock: Clock, *, trusts_this_machine: bool = True) -> None:
        self._clock, self._trusts_this_machine = clock, trusts_this_machine
        self._here: dict[str, WillowConnection] = {}
        "By the directory's id."
        self._left: dict[str, _DepartedDevice] = {}
        "By address: whose requests from there are still a device's."

    @contextmanager
    def here(self, connection: WillowConnection) -> Iterator[None]:
        """While the body runs the device counts as connected; the newer of two is the device."""
        device_id = connection.device.id
        self._here[device_id] = connection
        self._left.pop(connection.address, None)
        try:
            yield
        finally:
            if self._here.get(device_id) is connection:
                del self._here[device_id]
                if connection.is_welcome:
                    self._remember(connection)

    def all(self) -> list[WillowConnection]:
        return list(self._here.values())

    def find(self, device_id: str) -> WillowConnection | None:
        return self._here.get(device_id)

    def where(self, does_fit: Callable[[WillowConnection], bool]) -> WillowConnection | None:
        return next((one for one in self._here.values() if does_fit(one)), None)

    def admits(self, peer: str | None) -> bool:
        """Whether requests from this address need no key: an approved device is connected from
        there, or was a moment ago. Behind an address of this machine there may be a forwarder of
        bytes, and so anybody: it counts only where this machine is trusted."""
        address = address_of(peer)
        if address is None or (address.is_loopback and not self._trusts_this_machine):
            return False
        name = str(address)
        if any(one.address == name for one in self._here.values()):
            return True
        left = self._left.get(name)
        return left is not None and left.until > self._clock.now()

    def speaker(
        self, peer: str | None, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> WillowConnection | None:
        """The device that asks, of those connected from this address: the one that the request
        names, in the URL that we gave it (`device`) or in WIS's `x-willow-id`, else the only one
        that there is. None where that is not clear: several behind one address of which none is
        named. A name alone is not believed."""
        address = address_of(peer)
        near = [one for one in self._here.values() if address and one.address == str(address)]
        for said in (query.get("device"), headers.get("x-willow-id")):
            if said:
                return next((one for one in near if said.lower() in one.names), None)
        return near[0] if len(near) == 1 else None

    @property
    def left(self) -> frozenset[str]:
        """Hardware ids of those that left a moment ago."""
        return frozenset(one.hardware_id for one in self._left.values())

    def forget(self, hardware_id: str) -> None:
        """It was blocked or forgotten meanwhile: its address is nobody's."""
        self._left = {at: one for at, one in self._left.items() if one.hardware_id != hardware_id}

    def _remember(self, connection: WillowConnection) -> None:
        now = self._clock.now()
        self._left = {at: one for at, one in self._left.items() if one.until > now}
        if len(self._left) < MAX_REMEMBERED:
            left = _DepartedDevice(connection.device.hardware_id, now + GRACE_S)
            self._left[connection.address] = left
