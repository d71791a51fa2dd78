"""Named keys: keys of persons and programs, next to the one key of the server's owner."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

KeyScope = Literal["talk", "manage", "models"]
"Part of the server that a key opens. Each route states exactly one."

SCOPES: Mapping[KeyScope, str] = {
    "talk": "sessions, transcription, speech and questions",
    "manage": "devices, settings, keys, the home and metrics",
    "models": "embeddings, reranking, raw language models; loading and downloading models",
}
"Scope -> what it opens, in the order in which scopes are listed."


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
