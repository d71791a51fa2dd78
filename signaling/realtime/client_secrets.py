"""Client secrets (`ek_...`): short-lived keys that a browser gets instead of the server's key. A
client secret opens sessions with the settings that were fixed when it was made, until it expires.
Only hashes are kept: nobody can read a key from the server's memory, a log or a repr."""

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from core.access.named_key import CALLER_KEY, NamedKey
from core.conversation.ids import new_secret
from core.errors import OverloadedError, RequestError, Unauthorized
from core.ports import Clock
from pipeline.session.sessions import ClientSecretHolder
from signaling.realtime.protocol.structs import StrictStruct
from signaling.realtime.session.schema import RealtimeSession, SessionObject
from signaling.realtime.session.settings import SessionConfiguration

PREFIX = "ek_"
"Prefix of a client secret, the same as in OpenAI's API."

DEFAULT_TTL_S = 600
"Lifetime of a client secret if the request names none, in seconds."
MAX_LIVE = 10_000
"""Largest number of live secrets. No household needs as many, and a faulty script could make them
in seconds."""
MAX_BYTES = 16 * 1024 * 1024
"""Memory limit for the session objects of all live secrets, as JSON. One has 256 KiB at most and
usually 1 kB."""
MAX_SESSIONS = 2
"Sessions at once with one secret. A browser needs one, and two while it reconnects."
RETRY_AFTER_S = 10
"`Retry-After` for a refused client, in seconds: the shortest lifetime of a secret."

Lifetime = Annotated[int, Meta(ge=10, le=7200)]
"Lifetime of a secret in seconds."


class ExpiresAfter(StrictStruct, frozen=True):
    """Lifetime of a new client secret."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Lifetime = DEFAULT_TTL_S


class ClientSecretExtension(StrictStruct, frozen=True):
    """Fields that OpenAI's API does not have."""

    ends_sessions: bool = False
    "True: sessions that the secret opened end when it expires."


class ClientSecretRequest(StrictStruct, frozen=True):
    """Body of `POST /v1/realtime/client_secrets`."""

    expires_after: ExpiresAfter | None = None
    session: SessionObject | None = None
    earshot: ClientSecretExtension | None = None


class ClientSecretResponse(Struct, frozen=True):
    """New client secret, with the session that it opens."""

    value: str
    expires_at: int
    "Expiry as Unix time, in seconds."
    session: dict[str, Any]

    def __repr__(self) -> str:
        return f"ClientSecretResponse(expires_at={self.expires_at})"


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """One live client secret, with the settings of the sessions that it opens."""

    session: SessionObject
    secret_holder: ClientSecretHolder
    ends_at: float
    "Expiry on the server's monotonic clock, in seconds."
    ends_sessions: bool
    size_bytes: int
    "Size of the session object as JSON."
    named_key: NamedKey | None
    "Named key that made the secret, and whose limits hold for it. None: the owner's key."


class ClientSecretStore:
    """All live client secrets of the server."""

    def __init__(
        self,
        clock: Clock,
        *,
        max_live: int = MAX_LIVE,
        max_bytes: int = MAX_BYTES,
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        """Creates an empty store. `max_live`: secrets at once. `max_bytes`: session objects of all
        secrets together. `max_sessions`: sessions at once with one secret."""
        self._clock = clock
        self._max_live, self._max_bytes, self._max_sessions = max_live, max_bytes, max_sessions
        self._secrets: dict[bytes, ClientSecret] = {}

    def mint(self, request: ClientSecretRequest) -> tuple[str, int]:
        """Makes a new secret; returns it with its expiry as Unix time. Raises OverloadedError
        too_many_client_secrets."""
        self._forget_expired()
        session = request.session or RealtimeSession()
        size_bytes = len(msgspec.json.encode(session))
        used_bytes = sum(client_secret.size_bytes for client_secret in self._secrets.values())
        if len(self._secrets) >= self._max_live or used_bytes + size_bytes > self._max_bytes:
            raise OverloadedError(
                f"{len(self._secrets)} client secrets with {used_bytes} bytes of sessions are in"
                f" use; the limits are {self._max_live} and {self._max_bytes} bytes",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_client_secrets",
            )
        ttl_s = request.expires_after.seconds if request.expires_after else DEFAULT_TTL_S
        token = PREFIX + new_secret(24)
        key = _hash(token)
        self._secrets[key] = ClientSecret(
            session,
            ClientSecretHolder(key, self._max_sessions),
            self._clock.now() + ttl_s,
            ends_sessions=request.earshot is not None and request.earshot.ends_sessions,
            size_bytes=size_bytes,
            named_key=CALLER_KEY.get(),
        )
        ends = self._clock.wall() + timedelta(seconds=ttl_s)
        return token, int(ends.timestamp())

    def is_valid(self, token: str) -> bool:
        """Returns True if the token is a live client secret."""
        return bool(self.check(token))

    def check(self, token: str) -> NamedKey | bool:
        """Returns False if the token is no live client secret, else the named key that made it, or
        True (`core.http.routes.TokenCheck`)."""
        client_secret = self._secrets.get(_hash(token))
        if client_secret is None or self._clock.now() >= client_secret.ends_at:
            return False
        return client_secret.named_key or True

    def forget_made_by(self, named_key: NamedKey) -> None:
        """Forgets the client secrets that a named key has made: they open nothing more."""
        for digest, client_secret in list(self._secrets.items()):
            if client_secret.named_key is not None and client_secret.named_key.id == named_key.id:
                del self._secrets[digest]

    def find(self, token: str | None) -> ClientSecret | None:
        """Returns the live client secret of a token; None if the token is no client secret. Raises
        Unauthorized for a secret that is unknown or has expired."""
        if token is not None and self.is_valid(token):
            client_secret = self._secrets[_hash(token)]
            if not client_secret.ends_sessions:
                return client_secret
            left_s = client_secret.ends_at - self._clock.now()
            return replace(
                client_secret, secret_holder=replace(client_secret.secret_holder, ends_in_s=left_s)
            )
        if token is not None and token.startswith(PREFIX):
            raise Unauthorized("the client secret is unknown or has expired: mint a new one")
        return None

    def _forget_expired(self) -> None:
        now = self._clock.now()
        for key in [
            key for key, client_secret in self._secrets.items() if now >= client_secret.ends_at
        ]:
            del self._secrets[key]


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()


# Rules for sessions that a client secret opened: what the secret has fixed cannot be changed.


@dataclass(frozen=True, slots=True)
class ClientSecretConfiguration(SessionConfiguration):
    """Configuration of a session that a client secret opened. Changed copies keep this class."""


def fix_configuration(configuration: SessionConfiguration) -> ClientSecretConfiguration:
    """Marks a configuration as one that a client secret fixed."""
    return ClientSecretConfiguration(
        **{option.name: getattr(configuration, option.name) for option in fields(configuration)}
    )


def check_conversation(requested_id: str | None, fixed_id: str | None) -> None:
    """Raises RequestError if a client with a secret names another conversation than the secret's. A
    browser's key must not open another user's conversation. `fixed_id`: the secret's."""
    if requested_id is not None and requested_id != fixed_id:
        raise RequestError(
            "The conversation is fixed by the client secret: leave it out.",
            code="cannot_update_conversation",
            param="conversation_id",
        )


def check_type(old: SessionConfiguration, new: SessionConfiguration) -> None:
    """Raises RequestError if an update changes the session's type and a client secret has fixed it.
    A secret for transcription must not open a session that answers, nor the reverse."""
    if isinstance(old, ClientSecretConfiguration) and new.settings.answers != old.settings.answers:
        was = "realtime" if old.settings.answers else "transcription"
        raise RequestError(
            f"The type is fixed by the client secret: it was minted for '{was}'.",
            code="cannot_update_type",
            param="session.type",
        )
