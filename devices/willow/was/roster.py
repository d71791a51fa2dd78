"""Which approved devices are connected, and whose requests come from where."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from core.ports import Clock
from devices.networks import address_of
from devices.willow.was.connection import Connection

GRACE_S = 600.0
"""After its socket went: a device hangs up before it fetches its firmware, and one with bad Wi-Fi
may still be fetching speech."""

MAX_REMEMBERED = 1024


class Roster:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._here: dict[str, Connection] = {}
        "By the directory's id."
        self._left: dict[str, float] = {}
        "Address -> until when requests from there are still a device's."

    @contextmanager
    def here(self, connection: Connection) -> Iterator[None]:
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
                    self._remember(connection.address)

    def all(self) -> list[Connection]:
        return list(self._here.values())

    def find(self, device_id: str) -> Connection | None:
        return self._here.get(device_id)

    def where(self, does_fit: Callable[[Connection], bool]) -> Connection | None:
        return next((one for one in self._here.values() if does_fit(one)), None)

    def admits(self, peer: str | None) -> bool:
        """Whether requests from this address need no key: an approved device is connected from
        there, or was a moment ago."""
        address = address_of(peer)
        if address is None:
            return False
        name = str(address)
        if any(one.address == name for one in self._here.values()):
            return True
        return self._left.get(name, 0.0) > self._clock.now()

    def speaker(
        self, peer: str | None, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Connection | None:
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

    def _remember(self, address: str) -> None:
        now = self._clock.now()
        self._left = {one: until for one, until in self._left.items() if until > now}
        if len(self._left) < MAX_REMEMBERED:
            self._left[address] = now + GRACE_S
