"""Connected approved devices, and the addresses from which their requests come."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from core.net.ip_addresses import peer_address
from core.ports import Clock
from devices.willow.was.socket.connection import WillowConnection

GRACE_S = 600.0
"""Time after a disconnect in which the address still counts as the device's. A device hangs up
before it fetches its firmware, and a device with bad Wi-Fi may still be fetching speech."""

MAX_REMEMBERED = 1024
"""Limit of departed devices that are remembered. A further one needs the key as soon as it has
disconnected."""


@dataclass(frozen=True, slots=True)
class _DepartedDevice:
    """A device that disconnected a short time ago."""

    hardware_id: str
    remembered_until: float
    "Clock.now() after which its address no longer counts."


class WillowDevices:
    """The connected Willow devices, by id and by address."""

    def __init__(self, clock: Clock, *, trusts_this_machine: bool = True) -> None:
        self._clock, self._trusts_this_machine = clock, trusts_this_machine
        self._connections: dict[str, WillowConnection] = {}
        "Connections by the directory's id."
        self._departed: dict[str, _DepartedDevice] = {}
        "Departed devices by their address, which still counts as theirs."

    @contextmanager
    def connected(self, connection: WillowConnection) -> Iterator[None]:
        """Counts the device as connected while the `with` block runs; the newer of two connections
        counts."""
        device_id = connection.device.id
        self._connections[device_id] = connection
        self._departed.pop(connection.address, None)
        try:
            yield
        finally:
            if self._connections.get(device_id) is connection:
                del self._connections[device_id]
                if connection.is_served:
                    self._remember(connection)

    def all(self) -> list[WillowConnection]:
        """Returns the connections of all devices."""
        return list(self._connections.values())

    def find(self, device_id: str) -> WillowConnection | None:
        """Returns the connection of a device; None: it is not connected."""
        return self._connections.get(device_id)

    def first_match(self, does_fit: Callable[[WillowConnection], bool]) -> WillowConnection | None:
        """Returns the first connection for which `does_fit` is true."""
        return next(
            (connection for connection in self._connections.values() if does_fit(connection)), None
        )

    def admits(self, peer: str | None) -> bool:
        """Returns True if requests from this address need no key.

        An approved device must be connected from there, or was until a moment ago. A loopback
        address counts only where this machine is trusted: it may belong to a proxy, behind which
        any client could be.
        """
        address = peer_address(peer)
        if address is None or (address.is_loopback and not self._trusts_this_machine):
            return False
        name = str(address)
        if any(connection.address == name for connection in self._connections.values()):
            return True
        departed = self._departed.get(name)
        return departed is not None and departed.remembered_until > self._clock.now()

    def sender(
        self, peer: str | None, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> WillowConnection | None:
        """Returns the device that a request comes from, among those connected from this address.

        It is the device that the request names: in the URL that Earshot gave it (`device`) or in
        WIS's header `x-willow-id`. Without a name it is the only device at the address. None where
        that is not clear, as with several devices behind one address. A name alone, from another
        address, is not believed.
        """
        address = peer_address(peer)
        near = [
            connection
            for connection in self._connections.values()
            if address and connection.address == str(address)
        ]
        for name_in_request in (query.get("device"), headers.get("x-willow-id")):
            if name_in_request:
                return next(
                    (
                        connection
                        for connection in near
                        if name_in_request.lower() in connection.names
                    ),
                    None,
                )
        return near[0] if len(near) == 1 else None

    @property
    def departed_ids(self) -> frozenset[str]:
        """Returns the hardware ids of devices that disconnected a moment ago."""
        return frozenset(departed.hardware_id for departed in self._departed.values())

    def forget(self, hardware_id: str) -> None:
        """Forgets a device that was blocked or deleted after it disconnected: its address needs the
        key again."""
        self._departed = {
            at: departed
            for at, departed in self._departed.items()
            if departed.hardware_id != hardware_id
        }

    def _remember(self, connection: WillowConnection) -> None:
        now = self._clock.now()
        self._departed = {
            at: departed
            for at, departed in self._departed.items()
            if departed.remembered_until > now
        }
        if len(self._departed) < MAX_REMEMBERED:
            self._departed[connection.address] = _DepartedDevice(
                connection.device.hardware_id, now + GRACE_S
            )
