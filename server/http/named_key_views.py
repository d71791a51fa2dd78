"""JSON bodies of `/v1/keys`, requests and responses."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from core.access.named_key import KeyScope
from devices.api.views import SessionProfileEdit
from devices.fleet.directory import SessionProfile

MAX_LIMIT = 100_000
"Largest limit that a key may have; more is no limit."

Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]


class NamedKeyView(Struct, frozen=True):
    """A named key, without the key itself."""

    name: str
    scopes: tuple[KeyScope, ...]
    max_sessions: int | None
    "Largest number of sessions at once. None: only the server's limit counts."
    requests_per_minute: int | None
    "None: no limit."
    created: datetime
    last_used: datetime | None
    "Time of its last request, ISO 8601 in UTC. None: never."
    sessions: int
    "Live sessions that it has opened, also with its client secrets."
    profile: SessionProfile
    "Settings with which its sessions begin."


class NamedKeyList(Struct, frozen=True):
    """All named keys, by name."""

    keys: tuple[NamedKeyView, ...]


class NamedKeyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A key to make."""

    name: str
    "1 to 64 of A-Z a-z 0-9 . _ -"
    scopes: tuple[KeyScope, ...] = ("talk",)
    max_sessions: Limit | None = None
    requests_per_minute: Limit | None = None
    profile: SessionProfileEdit = SessionProfileEdit()
    "Settings with which its sessions begin; the server's where a field is not given."


class NamedKeyEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a key."""

    profile: SessionProfileEdit = SessionProfileEdit()


class NewNamedKey(Struct, frozen=True):
    """A key that was just made. The server cannot show `key` again."""

    key: str
    entry: NamedKeyView

    def __repr__(self) -> str:
        return f"NewNamedKey(entry={self.entry!r})"
