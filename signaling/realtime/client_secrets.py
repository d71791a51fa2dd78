"""Ephemeral keys (`ek_...`): what a browser gets instead of the server's key.

One opens sessions as they were fixed when it was minted, until it expires. Only hashes are kept:
whoever reads the server's memory, a log or a repr finds no key.
"""

import secrets
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from core.errors import OverloadedError, RequestError, Unauthorized
from core.ports import Clock
from pipeline.session.sessions import ClientSecretHolder
from signaling.realtime.protocol.structs import StrictStruct
from signaling.realtime.session.schema import RealtimeSession, SessionObject
from signaling.realtime.session.settings import SessionConfiguration

PREFIX = "ek_"

DEFAULT_TTL_S = 600
MAX_LIVE = 10_000
"A table that a slip of a script fills in seconds, and no house needs."
MAX_BYTES = 16 * 1024 * 1024
"Session objects of all live keys, as JSON. One has 256 KiB at most and 1 kB usually."
MAX_SESSIONS = 2
"A browser needs one; while it reconnects, two."
RETRY_AFTER_S = 10
"So long the shortest-lived one lives."

Lifetime = Annotated[int, Meta(ge=10, le=7200)]


class ExpiresAfter(StrictStruct, frozen=True):
    anchor: Literal["created_at"] = "created_at"
    seconds: Lifetime = DEFAULT_TTL_S


class ClientSecretExtension(StrictStruct, frozen=True):
    """Fields that only this server offers."""

    ends_sessions: bool = False
    "Sessions that the key opened end when it expires."


class ClientSecretRequest(StrictStruct, frozen=True):
    """The body of `POST /v1/realtime/client_secrets`."""

    expires_after: ExpiresAfter | None = None
    session: SessionObject | None = None
    earshot: ClientSecretExtension | None = None


class ClientSecretResponse(Struct, frozen=True):
    value: str
    expires_at: int
    "Unix time."
    session: dict[str, Any]

    def __repr__(self) -> str:
        return f"SecretAnswer(expires_at={self.expires_at})"


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """One live key: what it opens."""

    session: SessionObject
    guest: ClientSecretHolder
    ends_at: float
    "On the server's monotonic clock."
    ends_sessions: bool
    size_bytes: int
    "The size of the session object as JSON."


class ClientSecretStore:
    """Every live key of the server."""

    def __init__(
        self,
        clock: Clock,
        *,
        max_live: int = MAX_LIVE,
        max_bytes: int = MAX_BYTES,
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        """`max_sessions`: sessions that one key may have at once."""
        self._clock = clock
        self._max_live, self._max_bytes, self._max_sessions = max_live, max_bytes, max_sessions
        self._live: dict[bytes, ClientSecret] = {}

    def mint(self, asked: ClientSecretRequest) -> tuple[str, int]:
        """A new key and the Unix time of its end. Raises Overloaded too_many_client_secrets."""
        self._forget_expired()
        session = asked.session or RealtimeSession()
        size_bytes = len(msgspec.json.encode(session))
        used_bytes = sum(minted.size_bytes for minted in self._live.values())
        if len(self._live) >= self._max_live or used_bytes + size_bytes > self._max_bytes:
            raise OverloadedError(
                f"{len(self._live)} client secrets with {used_bytes} bytes of sessions are in use; "
                f"the limits are {self._max_live} and {self._max_bytes} bytes",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_client_secrets",
            )
        ttl_s = asked.expires_after.seconds if asked.expires_after else DEFAULT_TTL_S
        token = PREFIX + secrets.token_hex(24)
        key = _hash(token)
        self._live[key] = ClientSecret(
            session,
            ClientSecretHolder(key, self._max_sessions),
            self._clock.now() + ttl_s,
            ends_sessions=asked.earshot is not None and asked.earshot.ends_sessions,
            size_bytes=size_bytes,
        )
        ends = self._clock.wall() + timedelta(seconds=ttl_s)
        return token, int(ends.timestamp())

    def knows(self, token: str) -> bool:
        """Whether it opens anything now."""
        minted = self._live.get(_hash(token))
        return minted is not None and self._clock.now() < minted.ends_at

    def minted_for(self, token: str | None) -> ClientSecret | None:
        """The key that this token is; None: it is no client secret. Raises Unauthorized for
        one that expired."""
        if token is not None and self.knows(token):
            minted = self._live[_hash(token)]
            if not minted.ends_sessions:
                return minted
            left_s = minted.ends_at - self._clock.now()
            return replace(minted, guest=replace(minted.guest, ends_in_s=left_s))
        if token is not None and token.startswith(PREFIX):
            raise Unauthorized("the client secret is unknown or has expired: mint a new one")
        return None

    def _forget_expired(self) -> None:
        now = self._clock.now()
        for key in [key for key, minted in self._live.items() if now >= minted.ends_at]:
            del self._live[key]


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()


# What the ephemeral key that opened a session has fixed of it.


@dataclass(frozen=True, slots=True)
class ClientSecretConfiguration(SessionConfiguration):
    """Of a session that an ephemeral key opened; what is changed of them stays of this kind."""


def as_minted(terms: SessionConfiguration) -> ClientSecretConfiguration:
    return ClientSecretConfiguration(
        **{one.name: getattr(terms, one.name) for one in fields(terms)}
    )


def check_conversation(asked: str | None, minted: str | None) -> None:
    """A browser's key must not open somebody else's conversation. Raises RequestError."""
    if asked is not None and asked != minted:
        raise RequestError(
            "The conversation is fixed by the client secret: leave it out.",
            code="cannot_update_conversation",
            param="conversation_id",
        )


def check_type(old: SessionConfiguration, new: SessionConfiguration) -> None:
    """A key that was made for writing down must not open a session that answers, nor the other way
    round. Raises RequestError."""
    if isinstance(old, ClientSecretConfiguration) and new.settings.answers != old.settings.answers:
        was = "realtime" if old.settings.answers else "transcription"
        raise RequestError(
            f"The type is fixed by the client secret: it was minted for '{was}'.",
            code="cannot_update_type",
            param="session.type",
        )
