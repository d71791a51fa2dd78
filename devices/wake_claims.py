"""Asks whether a device may answer a wake word, where devices of one room are connected to several
servers. The servers of other machines are behind it; a server that works alone asks nobody."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class WakeClaim:
    """A device that won among those of this server wants to answer."""

    room: str
    "Digest of the wake word and the room; see `room_digest`."
    device_id: str
    level_db: float | None
    "Level of the wake word as the device reported it; None: it reported none."


class WakeClaims:
    """The claims of this server. `ask` and `groups` are set by those who know."""

    def __init__(self) -> None:
        self.ask: Callable[[WakeClaim], Awaitable[bool]] | None = None
        """Asks the servers of the other machines; returns True for at most one device of a room.
        None: this server works alone."""
        self.groups: Callable[[], Iterable[str]] = tuple
        "Returns the groups whose devices report wake words here now."

    @property
    def is_shared(self) -> bool:
        """True if another server may answer the same wake word."""
        return self.ask is not None

    async def claim(self, group: str, device_id: str, level_db: float | None) -> bool:
        """Returns whether the device may answer. `group`: its wake word and its room. Raises
        nothing but cancellation."""
        if self.ask is None:
            return True
        return await self.ask(WakeClaim(room_digest(group), device_id, level_db))

    def rooms(self) -> frozenset[str]:
        """Returns the digests of the groups that have devices here."""
        return frozenset(map(room_digest, self.groups()))


def room_digest(group: str) -> str:
    """Returns a name of 64 characters for a group, however long the name of its room is."""
    return sha256(group.encode("utf-8", "replace")).hexdigest()
