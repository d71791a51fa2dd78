"""Named keys: keys of persons and programs, next to the one key of the server's owner."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from core.access.limits import OwnPlaces, PlaceCounter
from core.errors import OverloadedError

KeyScope = Literal["talk", "manage", "models"]
"Part of the server that a key opens. Each route states exactly one."

SCOPES: Mapping[KeyScope, str] = {
    "talk": "sessions, transcription, speech and questions",
    "manage": "devices, settings, keys, the home and metrics",
    "models": "embeddings, reranking, raw language models; loading and downloading models",
}
"Scope -> what it opens, in the order in which scopes are listed."

RESERVED_PLACES = 1
"""Places that stay free for the owner (a client with the server's own key), so that holders of
client secrets and named keys cannot lock the owner out."""

RETRY_AFTER_S = 5
"Seconds after which a client may ask again when all sessions of its key or secret are open."


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A named key that is valid, without its secret."""

    id: str
    "Never used again, unlike the name: a new key with an old name does not get the old one's data."
    name: str
    scopes: tuple[KeyScope, ...]
    max_sessions: int | None = None
    "Most sessions at once. None: only the server's own limit counts."
    requests_per_minute: int | None = None
    "Most requests within a minute. None: no limit."


CALLER_KEY: ContextVar[NamedKey | None] = ContextVar("caller_key", default=None)
"""Named key of the request that the running task serves. None: the owner's key, a device, or a
request that needs no key.

Only the access gate sets it. Tasks that a request starts inherit it, so a call that outlives its
request still belongs to the key, and no door can forget to pass it on.
"""


def reaches(opener: NamedKey | None) -> bool:
    """Returns whether the caller may reach what a key has opened. A named key reaches its own, the
    owner everything. `opener`: None for the owner."""
    caller = CALLER_KEY.get()
    return caller is None or (opener is not None and opener.id == caller.id)


def places_for_owner() -> int:
    """Returns how many places of a limit the caller has to leave free for the server's owner."""
    return 0 if CALLER_KEY.get() is None else RESERVED_PLACES


def check_sessions(opened: int, limit: int, opener: str) -> None:
    """Raises OverloadedError too_many_sessions if the opener has as many sessions as it may have.
    opener: how the message names it."""
    if opened >= limit:
        raise OverloadedError(
            f"{opener} has {opened} of {limit} sessions open: end one first",
            retry_after_s=RETRY_AFTER_S,
            code="too_many_sessions",
        )


class KeySessions:
    """Counts the open sessions of each named key, over all doors."""

    def __init__(self, places: PlaceCounter | None = None) -> None:
        """`places`: counts the sessions of all processes; None: this is the only one."""
        self._places = places or OwnPlaces()

    def count_of(self, key: NamedKey) -> int:
        """Returns the number of open sessions of a key."""
        return self._places.count(_place_of(key))

    def check(self) -> None:
        """Raises OverloadedError too_many_sessions if `take` would raise now."""
        key = CALLER_KEY.get()
        if key is not None and key.max_sessions is not None:
            check_sessions(self.count_of(key), key.max_sessions, f"the key {key.name!r}")

    @contextmanager
    def take(self) -> Iterator[None]:
        """Counts one session of the caller's key while it is open. Raises OverloadedError
        too_many_sessions."""
        self.check()
        key = CALLER_KEY.get()
        if key is None:
            yield
            return
        name = _place_of(key)
        place = self._places.take(name)
        try:
            if key.max_sessions is not None:  # another process may have taken the last place
                others = self.count_of(key) - 1
                check_sessions(others, key.max_sessions, f"the key {key.name!r}")
            yield
        finally:
            self._places.give_back(name, place)


def _place_of(key: NamedKey) -> str:
    """Returns the name under which the sessions of a key are counted."""
    return f"key {key.id}"
