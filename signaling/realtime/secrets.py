"""Ephemeral keys (`ek_...`): what a browser gets instead of the server's key.

One opens sessions as they were fixed when it was minted, until it expires. Only hashes are kept:
whoever reads the server's memory, a log or a repr finds no key.
"""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from core.errors import Overloaded, Unauthorized
from core.ports import Clock
from signaling.realtime.session_object import RealtimeSession, SessionObject
from signaling.realtime.wire import WireStruct

PREFIX = "ek_"

DEFAULT_TTL_S = 600
MAX_LIVE = 10_000
"A session object has 256 KiB at most and 1 kB usually."
RETRY_AFTER_S = 10
"So long the shortest-lived one lives."

Lifetime = Annotated[int, Meta(ge=10, le=7200)]


class ExpiresAfter(WireStruct, frozen=True):
    anchor: Literal["created_at"] = "created_at"
    seconds: Lifetime = DEFAULT_TTL_S


class SecretRequest(WireStruct, frozen=True):
    """The body of `POST /v1/realtime/client_secrets`."""

    expires_after: ExpiresAfter | None = None
    session: SessionObject | None = None


class SecretAnswer(Struct, frozen=True):
    value: str
    expires_at: int
    "Unix time."
    session: dict[str, Any]

    def __repr__(self) -> str:
        return f"SecretAnswer(expires_at={self.expires_at})"


@dataclass(frozen=True, slots=True)
class Minted:
    session: SessionObject
    ends_at: float
    "On the server's monotonic clock."


class Secrets:
    """Every live key of the server."""

    def __init__(self, clock: Clock, *, max_live: int = MAX_LIVE) -> None:
        self._clock, self._max_live = clock, max_live
        self._live: dict[bytes, Minted] = {}

    def mint(self, asked: SecretRequest) -> tuple[str, int]:
        """A new key and the Unix time of its end. Raises Overloaded too_many_client_secrets."""
        self._forget_expired()
        if len(self._live) >= self._max_live:
            raise Overloaded(
                f"{self._max_live} client secrets are in use",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_client_secrets",
            )
        ttl_s = asked.expires_after.seconds if asked.expires_after else DEFAULT_TTL_S
        token = PREFIX + secrets.token_hex(24)
        session = asked.session or RealtimeSession()
        self._live[_hash(token)] = Minted(session, self._clock.now() + ttl_s)
        ends = self._clock.wall() + timedelta(seconds=ttl_s)
        return token, int(ends.timestamp())

    def knows(self, token: str) -> bool:
        """Whether it opens anything now."""
        minted = self._live.get(_hash(token))
        return minted is not None and self._clock.now() < minted.ends_at

    def session_of(self, token: str | None) -> SessionObject | None:
        """What the request's token was minted for; None: it is none of ours. Raises Unauthorized
        for one that expired."""
        if token is not None and self.knows(token):
            return self._live[_hash(token)].session
        if token is not None and token.startswith(PREFIX):
            raise Unauthorized("the client secret is unknown or has expired: mint a new one")
        return None

    def _forget_expired(self) -> None:
        now = self._clock.now()
        for key in [key for key, minted in self._live.items() if now >= minted.ends_at]:
            del self._live[key]


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()
