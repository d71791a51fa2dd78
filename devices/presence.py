"""Which devices are connected now and what they do: announcements find them here, the page shows
it. In memory only; the directory knows those that are away, too."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

DeviceActivity = Literal["idle", "listening", "thinking", "speaking"]

DeviceEventKind = Literal["connected", "disconnected", "turn", "error"]


class DeviceEventSink(Protocol):
    """Keeps what happens on devices, for `earshot devices logs`."""

    def __call__(
        self,
        device_id: str,
        what: DeviceEventKind,
        *,
        code: str = "",
        timing: Mapping[str, float] | None = None,
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNotification:
    """Something to be shown and heard on a device unasked."""

    text: str
    "Spoken in the device's voice, and shown where it has a display."
    audio_url: str = ""
    "Played in place of the spoken text, by devices that fetch sound themselves."


class ConnectedDevice(Protocol):
    """A connected device, as its door has it."""

    @property
    def doing(self) -> DeviceActivity: ...

    @property
    def timing(self) -> Mapping[str, float] | None:
        """The last turn's marks (`core.events`), for the waterfall; None before the first."""
        ...

    async def notify(self, notice: DeviceNotification) -> bool:
        """False: it cannot be heard there now (no socket while idle, volume of a phone call)."""
        ...

    async def restart(self) -> bool:
        """Reboot the device. False: this kind cannot be told to."""
        ...

    async def update(self, firmware: str) -> bool:
        """Take this firmware: a version that the door has; empty: the newest it has. False: this
        kind cannot be told to, not now, or there is none. Raises RequestError for a URL."""
        ...

    async def close(self) -> None:
        """End its connection: it was forgotten or blocked, or came twice."""
        ...


class Presence:
    """Every connected device by the directory's id. Two connections of one device: the newer is the
    device, the door closes the older."""

    def __init__(self, witness: DeviceEventSink | None = None) -> None:
        self._live: dict[str, ConnectedDevice] = {}
        self._identities: dict[str, bytes] = {}
        self._next_change = asyncio.Event()
        self._witness = witness

    @contextmanager
    def here(
        self, device_id: str, live: ConnectedDevice, identity: bytes = b""
    ) -> Iterator[ConnectedDevice | None]:
        """While the body runs the device counts as connected. Yields the connection that it
        replaces, which the caller closes. `identity`: that of the device as it was let in."""
        former = self._live.get(device_id)
        self._live[device_id], self._identities[device_id] = live, identity
        self._tell(device_id, "connected")
        self.note_change()
        try:
            yield former
        finally:
            if self._live.get(device_id) is live:
                del self._live[device_id], self._identities[device_id]
                self._tell(device_id, "disconnected")
                self.note_change()

    def find(self, device_id: str) -> ConnectedDevice | None:
        return self._live.get(device_id)

    def ids(self) -> Sequence[str]:
        return tuple(self._live)

    def all_here(self) -> Mapping[str, tuple[ConnectedDevice, bytes]]:
        """By the directory's id: the connections as they are now, each with the identity that was
        let in."""
        return {one: (live, self._identities[one]) for one, live in self._live.items()}

    def note_change(self) -> None:
        """A door calls it when a device does something else."""
        self._next_change.set()
        self._next_change = asyncio.Event()

    def note_turn(self, device_id: str) -> None:
        """A door calls it when a turn is over; the device's log keeps its `timing`."""
        live = self._live.get(device_id)
        self._tell(device_id, "turn", timing=live.timing if live else None)
        self.note_change()

    def note_error(self, device_id: str, code: str) -> None:
        """A door calls it when something failed on a device, connected or not: the stable code of
        an error (`core.errors`), never words."""
        self._tell(device_id, "error", code=code)

    def changed(self) -> asyncio.Event:
        """Set at the next change."""
        return self._next_change

    def _tell(
        self,
        device_id: str,
        what: DeviceEventKind,
        *,
        code: str = "",
        timing: Mapping[str, float] | None = None,
    ) -> None:
        if self._witness is not None:
            self._witness(device_id, what, code=code, timing=timing)
