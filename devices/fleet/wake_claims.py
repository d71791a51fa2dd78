"""Asks whether a device may answer a wake word, where devices of one room are connected to several
servers. The servers of other machines are behind it; a server that works alone asks nobody."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256

from devices.fleet.arbitration import WakeLevel


@dataclass(frozen=True, slots=True)
class WakeClaim:
    """A device that won among those of this server wants to answer."""

    room: str
    "Digest of the room, see `digest`."
    contest: str
    "Digest of the wake word and the room: devices with different wake words do not compete."
    device_id: str
    level: WakeLevel | None
    "Level at which the device received the wake word; None: not known."


class WakeClaims:
    """The claims of this server. `ask` and `areas` are set by those who know."""

    def __init__(self) -> None:
        self.ask: Callable[[WakeClaim], Awaitable[bool]] | None = None
        """Asks the servers of the other machines; returns True for at most one device of a room.
        None: this server works alone."""
        self.areas: Callable[[], Iterable[str]] = tuple
        "Returns the rooms with devices that report wake words here now."

    @property
    def is_shared(self) -> bool:
        """True if another server may answer the same wake word."""
        return self.ask is not None

    async def claim(self, area: str, group: str, device_id: str, level: WakeLevel | None) -> bool:
        """Returns whether the device may answer. `area`: its room. `group`: its wake word and its
        room. Raises nothing but cancellation."""
        if self.ask is None:
            return True
        return await self.ask(WakeClaim(digest(area), digest(group), device_id, level))

    def rooms(self) -> frozenset[str]:
        """Returns the digests of the rooms that have devices here."""
        return frozenset(map(digest, self.areas()))


def digest(name: str) -> str:
    """Returns a name of 64 characters for a room, however long its own name is."""
    return sha256(name.encode("utf-8", "replace")).hexdigest()
