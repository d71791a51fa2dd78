"""Which devices are connected now and what they do: announcements find them here, the page shows
it. In memory only; the directory knows those that are away, too."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

Doing = Literal["idle", "listening", "thinking", "speaking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something to be shown and heard on a device unasked."""

    text: str
    "Spoken in the device's voice, and shown where it has a display."
    audio_url: str = ""
    "Played in place of the spoken text, by devices that fetch sound themselves."


class Live(Protocol):
    """A connected device, as its door has it."""

    @property
    def doing(self) -> Doing: ...

    @property
    def timing(self) -> Mapping[str, float] | None:
        """The last turn's marks (`core.events`), for the waterfall; None before the first."""
        ...

    async def notify(self, notice: Notice) -> bool:
        """False: it cannot be heard there now (no socket while idle, volume of a phone call)."""
        ...

    async def restart(self) -> bool:
        """Reboot the device. False: this kind cannot be told to."""
        ...

    async def close(self) -> None:
        """End its connection: it was forgotten or blocked, or came twice."""
        ...


class Presence:
    """Every connected device by the directory's id. Two connections of one device: the newer is the
    device, the door closes the older."""

    def __init__(self) -> None:
        self._live: dict[str, Live] = {}
        self._next_change = asyncio.Event()

    @contextmanager
    def here(self, device_id: str, live: Live) -> Iterator[Live | None]:
        """While the body runs the device counts as connected. Yields the connection that it
        replaces, which the caller closes."""
        former = self._live.get(device_id)
        self._live[device_id] = live
        self.note_change()
        try:
            yield former
        finally:
            if self._live.get(device_id) is live:
                del self._live[device_id]
                self.note_change()

    def find(self, device_id: str) -> Live | None:
        return self._live.get(device_id)

    def ids(self) -> Sequence[str]:
        return tuple(self._live)

    def note_change(self) -> None:
        """A door calls it when a device does something else."""
        self._next_change.set()
        self._next_change = asyncio.Event()

    def changed(self) -> asyncio.Event:
        """Set at the next change."""
        return self._next_change
