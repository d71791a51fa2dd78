"""Registry of connected devices and their activity, for announcements and the page.

It is in memory only; the directory also knows devices that are away.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

DeviceActivity = Literal["idle", "listening", "thinking", "speaking"]
"Activity of a connected device."

DeviceEventKind = Literal["connected", "disconnected", "turn", "error"]
"Kinds of events in a device's log."


class DeviceEventSink(Protocol):
    """Receiver of events of devices, for `earshot devices logs`."""

    def __call__(
        self,
        device_id: str,
        kind: DeviceEventKind,
        *,
        code: str = "",
        timing: Mapping[str, float] | None = None,
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNotification:
    """An announcement for a device."""

    text: str
    "Spoken in the device's voice, and shown if it has a display."
    audio_url: str = ""
    "Played in place of the spoken text, by devices that fetch sound themselves."
    starts_conversation: bool = False
    "True: the device listens afterwards, if its kind can be told to."
    voice: str = ""
    "Voice that speaks the text; empty: that of the device."
    language: str = ""
    "Language of the text in ISO 639-1; empty: that of the device."


class ConnectedDevice(Protocol):
    """A connected device, as its door implements it."""

    @property
    def activity(self) -> DeviceActivity:
        """Present activity."""
        ...

    @property
    def timing(self) -> Mapping[str, float] | None:
        """Marks of the last turn (`core.conversation.events`), for the waterfall; None before the
        first turn."""
        ...

    async def notify(self, notice: DeviceNotification) -> bool:
        """Announces something. Returns False if it cannot be played now (no socket while idle,
        phone call)."""
        ...

    async def restart(self) -> bool:
        """Reboots the device. Returns False if this kind of device has no such command."""
        ...

    async def update(self, firmware: str) -> bool:
        """Starts a firmware update. firmware: a version that the door has; empty: the newest.

        Returns False if this kind has no such command, cannot do it now, or there is no such image.
        Raises RequestError for a URL.
        """
        ...

    async def close(self) -> None:
        """Closes its connection: the device was forgotten or blocked, or opened a second
        connection."""
        ...


@runtime_checkable
class AskableDevice(Protocol):
    """A connected device on which a program can ask somebody a question, if its firmware can."""

    @property
    def can_be_asked(self) -> bool:
        """True if it listens after a question. It may be busy now, all the same."""
        ...

    async def ask(self, question: str) -> str | None:
        """Speaks a question and returns the words that are said after it. The assistant does not
        respond to them. Waits until it is cancelled.

        None: it cannot be asked now, or it disconnected.
        """
        ...


@runtime_checkable
class StartableDevice(Protocol):
    """A connected device that can listen after an announcement, without a wake word."""

    @property
    def can_be_started(self) -> bool:
        """True if it takes `DeviceNotification.starts_conversation`."""
        ...


@runtime_checkable
class StoppableDevice(Protocol):
    """A connected device whose answer can be stopped from here."""

    async def stop(self) -> None:
        """Cancels the answer or announcement that it makes or plays, as its own button does."""
        ...


@runtime_checkable
class AdjustableDevice(Protocol):
    """A connected device whose loudspeaker can be set from here."""

    async def set_volume(self, volume: int) -> None:
        """Sets the volume, 0 to 100. Does nothing if this device has no such function."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWakeWord:
    """A wake word that a device knows."""

    id: str
    words: str
    is_active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSwitch:
    """A switch of a device, such as the sound after its wake word."""

    id: str
    name: str
    "Name that the device itself gives it."
    is_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSelect:
    """A choice on a device, such as the sensitivity for its wake word."""

    id: str
    name: str
    "Name that the device itself gives it."
    options: tuple[str, ...]
    choice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceControls:
    """Present settings of a connected device. None, or an empty tuple: it has no such setting, or
    has not said it yet."""

    volume: int | None = None
    "Volume of its loudspeaker, 0 to 100."
    is_muted: bool | None = None
    "True: its loudspeaker is silent."
    is_microphone_off: bool | None = None
    wake_words: tuple[DeviceWakeWord, ...] = ()
    max_wake_words: int = 0
    "Most wake words that can be active at once."
    switches: tuple[DeviceSwitch, ...] = ()
    selects: tuple[DeviceSelect, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlChanges:
    """Settings to change on a device; None, or an empty mapping: as it is."""

    volume: int | None = None
    "0 to 100."
    is_muted: bool | None = None
    is_microphone_off: bool | None = None
    wake_words: tuple[str, ...] | None = None
    "Ids of the wake words that become the active ones."
    switches: Mapping[str, bool] = field(default_factory=dict[str, bool])
    "By id."
    selects: Mapping[str, str] = field(default_factory=dict[str, str])
    "By id."


@runtime_checkable
class ControllableDevice(Protocol):
    """A connected device that shows its settings and lets them be changed."""

    @property
    def controls(self) -> DeviceControls:
        """Its present settings."""
        ...

    async def control(self, changes: ControlChanges) -> None:
        """Changes settings: all, or none of them. Raises RequestError invalid_value for a value
        that is not allowed; Conflict not_supported for a setting that it does not have, and
        device_away if it is gone."""
        ...


class Presence:
    """Connected devices by the directory's id.

    When a device has two connections, the newer counts and the door closes the older.
    """

    def __init__(self, event_sink: DeviceEventSink | None = None) -> None:
        self._devices: dict[str, ConnectedDevice] = {}
        self._identities: dict[str, bytes] = {}
        self._next_change = asyncio.Event()
        self._event_sink = event_sink

    @contextmanager
    def connected(
        self, device_id: str, live: ConnectedDevice, identity: bytes = b""
    ) -> Iterator[ConnectedDevice | None]:
        """Counts the device as connected while the `with` block runs.

        Yields the older connection that it replaces, which the caller closes, or None. identity:
        identity that the device had when it was admitted.
        """
        former = self._devices.get(device_id)
        self._devices[device_id], self._identities[device_id] = live, identity
        self._emit(device_id, "connected")
        self.note_change()
        try:
            yield former
        finally:
            if self._devices.get(device_id) is live:
                del self._devices[device_id], self._identities[device_id]
                self._emit(device_id, "disconnected")
                self.note_change()

    def find(self, device_id: str) -> ConnectedDevice | None:
        """Returns the connection of a device; None: it is not connected."""
        return self._devices.get(device_id)

    def ids(self) -> Sequence[str]:
        """Returns the ids of the connected devices."""
        return tuple(self._devices)

    def connections(self) -> Mapping[str, tuple[ConnectedDevice, bytes]]:
        """Returns the present connections by the directory's id, each with the identity that was
        admitted."""
        return {
            device_id: (live, self._identities[device_id])
            for device_id, live in self._devices.items()
        }

    def note_change(self) -> None:
        """Reports that the activity of a device changed; called by doors."""
        self._next_change.set()
        self._next_change = asyncio.Event()

    def note_turn(self, device_id: str) -> None:
        """Reports that a turn is over; called by doors. The device's log stores the `timing`."""
        live = self._devices.get(device_id)
        self._emit(device_id, "turn", timing=live.timing if live else None)
        self.note_change()

    def note_error(self, device_id: str, code: str) -> None:
        """Reports an error of a device, connected or not; called by doors.

        code: the stable code of an error (`core.errors`), never words of users.
        """
        self._emit(device_id, "error", code=code)

    def changed(self) -> asyncio.Event:
        """Returns the event that is set at the next change."""
        return self._next_change

    def _emit(
        self,
        device_id: str,
        kind: DeviceEventKind,
        *,
        code: str = "",
        timing: Mapping[str, float] | None = None,
    ) -> None:
        if self._event_sink is not None:
            self._event_sink(device_id, kind, code=code, timing=timing)
