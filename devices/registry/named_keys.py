"""Named keys in the database of the devices. Only digests are stored.

A key has 256 random bits, so one SHA-256 is enough: a slow hash makes guesses at a short password
expensive, and nobody guesses 256 bits. All keys are in memory, so that a request costs no query.
They are looked up by digest, and the time that takes reveals nothing about a key.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from core.access.limits import RequestRate
from core.access.named_key import SCOPES, KeyScope, NamedKey
from core.conversation.ids import new_id
from core.errors import Conflict, NotFound, OverloadedError, RequestError, StorageError
from core.ports import Clock
from devices.fleet.directory import EMPTY_PROFILE, SessionProfile
from devices.registry.database import Database
from devices.registry.kept_conversations import delete_of_key
from devices.registry.notifications import DeviceChangeChannel
from devices.registry.queries import known_profile
from devices.registry.tables import named_keys
from devices.registry.tokens import digest_of

logger = logging.getLogger(__name__)

PREFIX = "earshot_"
"Prefix that shows a person who finds a key what it is."

SECRET_BYTES = 32
"Random bytes of a key."

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"No sign that a URL, a shell or a double click would split."

_SECRET_CHARS = 43
"62 to the power of 43 is the first that exceeds 256 bits."

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"Names are a part of URLs and stand in log lines."

MAX_KEYS = 1000
"Most named keys. All are in memory, and a faulty script must not fill the database."

LAST_USED_PRECISION = timedelta(seconds=60)
"`last_used` is written at most this often: many requests must not cause as many writes."

RELOAD_S = 60.0
"""Interval at which keys are read again, for changes by another server whose notification did not
arrive, in seconds."""

RETRY_S = 5.0
"Interval while the keys could not be read yet, in seconds."


@dataclass(frozen=True, slots=True)
class NamedKeyRecord:
    """A named key with what is known about it."""

    key: NamedKey
    created: datetime
    last_used: datetime | None
    "None: never."
    profile: SessionProfile = EMPTY_PROFILE
    "Settings with which the sessions of the key begin."


class NamedKeys:
    """All named keys of the server. `run` must be active while the server is up."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._change_channel = DeviceChangeChannel(database)
        self._records: dict[bytes, NamedKeyRecord] = {}
        "Digest -> key."
        self._rates: dict[str, RequestRate] = {}
        "Id of a key -> its limit of requests."
        self._last_used: dict[str, datetime] = {}
        "Id of a key -> last use that is not stored yet."
        self._stored_at: datetime | None = None
        self._is_loaded = False
        self.on_revoked: list[Callable[[NamedKey], None]] = []
        "Called with each key that is valid no longer, in the event loop."

    def find(self, token: str) -> NamedKey | None:
        """Returns the valid key that this token is, or None."""
        if not token.startswith(PREFIX):
            return None
        record = self._records.get(digest_of(token))
        return record.key if record is not None else None

    def count_request(self, key: NamedKey) -> None:
        """Counts a request with the key, and notes its use. Raises OverloadedError
        too_many_requests above its limit."""
        now = self._clock.wall()
        self._last_used[key.id] = now
        rate = self._rates.get(key.id)
        wait_s = rate.take(self._clock.now()) if rate else 0.0
        if wait_s:
            raise OverloadedError(
                f"the key {key.name!r} may make {key.requests_per_minute} requests a minute",
                retry_after_s=max(1, -int(-wait_s // 1)),
                code="too_many_requests",
            )

    def all_keys(self) -> Sequence[NamedKeyRecord]:
        """Returns all valid keys by name."""
        records = sorted(self._records.values(), key=lambda record: record.key.name)
        return [
            replace(record, last_used=self._last_used.get(record.key.id, record.last_used))
            for record in records
        ]

    async def add(
        self,
        name: str,
        scopes: Sequence[KeyScope],
        *,
        max_sessions: int | None = None,
        requests_per_minute: int | None = None,
        profile: SessionProfile = EMPTY_PROFILE,
    ) -> tuple[NamedKeyRecord, str]:
        """Makes a key; returns it with its token, which is stored nowhere.

        Raises RequestError for a wrong name or no scope, Conflict key_exists or
        too_many_keys, StorageError.
        """
        check_name(name)
        if not scopes:
            raise RequestError(
                "a key needs at least one scope", code="invalid_value", param="scopes"
            )
        token = new_token()
        key = NamedKey(
            new_id("key"),
            name,
            tuple(scope for scope in SCOPES if scope in scopes),
            max_sessions,
            requests_per_minute,
        )
        record = NamedKeyRecord(key, self._clock.wall(), None, profile)

        def work(connection: Connection) -> None:
            same = select(named_keys.c.id).where(named_keys.c.name == name)
            if connection.execute(same).one_or_none() is not None:
                raise Conflict(
                    f"there is a key {name!r} already: revoke it first, or choose another name",
                    code="key_exists",
                    param="name",
                )
            count = connection.execute(select(func.count()).select_from(named_keys)).scalar_one()
            if count >= MAX_KEYS:
                raise Conflict(
                    f"there are {count} keys, the limit: revoke one first", code="too_many_keys"
                )
            connection.execute(insert(named_keys).values(_columns(record, digest_of(token))))
            self._change_channel.notify_others(connection)

        await self._database.run(work)
        self._set(digest_of(token), record)
        logger.info("= key %s was made: %s", name, ", ".join(key.scopes))
        return record, token

    def find_by_name(self, name: str) -> NamedKeyRecord:
        """Returns the valid key with this name. Raises NotFound key_not_found."""
        for record in self.all_keys():
            if record.key.name == name:
                return record
        raise _no_key(name)

    def profile_of(self, key: NamedKey) -> SessionProfile:
        """Returns the settings with which a session of the key begins now."""
        for record in self._records.values():
            if record.key.id == key.id:
                return record.profile
        return EMPTY_PROFILE  # revoked: what it has open is about to end

    async def edit(
        self, name: str, change: Callable[[SessionProfile], SessionProfile]
    ) -> NamedKeyRecord:
        """Changes the profile of a key; sessions that begin from now on have it. `change` maps the
        old profile to the new one. Raises NotFound key_not_found, StorageError."""

        def work(connection: Connection) -> Row[Any]:
            same = named_keys.c.name == name
            row = connection.execute(select(named_keys).where(same).with_for_update()).one_or_none()
            if row is None:
                raise _no_key(name)
            profile = msgspec.to_builtins(change(_record(row).profile))
            changed = update(named_keys).where(same).values(profile=profile)
            connection.execute(changed)
            self._change_channel.notify_others(connection)
            return connection.execute(select(named_keys).where(same)).one()

        row = await self._database.run(work)
        self._set(row.digest, _record(row))
        logger.info("= key %s has other settings", name)
        return self.find_by_name(name)

    async def revoke(self, name: str) -> None:
        """Deletes a key with the conversations and voices that it keeps: from now on it opens
        nothing, and what it has open ends. Raises NotFound key_not_found, StorageError."""

        def work(connection: Connection) -> None:
            same = select(named_keys.c.id).where(named_keys.c.name == name)
            key_id = connection.execute(same).scalar_one_or_none()
            if key_id is None:
                raise _no_key(name)
            connection.execute(delete(named_keys).where(named_keys.c.id == key_id))
            delete_of_key(connection, key_id)
            self._change_channel.notify_others(connection)

        await self._database.run(work)
        for digest, record in list(self._records.items()):
            if record.key.name == name:
                self._remove(digest)

    async def load(self) -> None:
        """Reads all keys, in place of those in memory. Raises StorageError."""
        rows = await self._database.run(
            lambda connection: connection.execute(select(named_keys)).all()
        )
        stored = {row.digest: _record(row) for row in rows}
        for digest in self._records.keys() - stored.keys():
            self._remove(digest)
        for digest, record in stored.items():
            self._set(digest, record)
        self._is_loaded = True

    async def run(self, changed: Callable[[], asyncio.Event]) -> None:
        """Follows changes by other servers, and stores when keys were used, until cancelled.

        changed: returns the event of the next change of the database by another server.
        """
        try:
            while True:
                event = changed()
                with suppress(StorageError):
                    await self.load()
                    await self.store_last_used()
                with suppress(TimeoutError):
                    async with asyncio.timeout(RELOAD_S if self._is_loaded else RETRY_S):
                        await event.wait()
        finally:
            self._stored_at = None
            with suppress(StorageError):
                await self.store_last_used()

    async def store_last_used(self) -> None:
        """Stores when keys were used, at most once a minute. Raises StorageError."""
        now, used = self._clock.wall(), dict(self._last_used)
        is_early = self._stored_at is not None and now - self._stored_at < LAST_USED_PRECISION
        if not used or is_early:
            return

        def work(connection: Connection) -> None:
            for key_id, at in used.items():
                where = named_keys.c.id == key_id
                connection.execute(update(named_keys).where(where).values(last_used=at))

        await self._database.run(work)
        self._stored_at = now
        for digest, record in self._records.items():
            if at := used.get(record.key.id):
                self._records[digest] = replace(record, last_used=at)
        for key_id, at in used.items():
            if self._last_used.get(key_id) == at:
                del self._last_used[key_id]

    def _set(self, digest: bytes, record: NamedKeyRecord) -> None:
        key, known = record.key, self._records.get(digest)
        self._records[digest] = record
        if known is None and key.requests_per_minute is not None:
            self._rates[key.id] = RequestRate(key.requests_per_minute)

    def _remove(self, digest: bytes) -> None:
        key = self._records.pop(digest).key
        self._rates.pop(key.id, None)
        self._last_used.pop(key.id, None)
        logger.info("= key %s was revoked", key.name)
        for act in self.on_revoked:
            act(key)


def check_name(name: str) -> None:
    """Raises RequestError for a name that a key cannot have."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise RequestError(
            f"{name[:64]!r} is no name for a key: 1 to 64 of A-Z a-z 0-9 . _ -, with a letter or a"
            " digit first",
            code="invalid_value",
            param="name",
        )


def new_token() -> str:
    """Returns a key of 256 random bits, in digits and letters."""
    number = int.from_bytes(secrets.token_bytes(SECRET_BYTES), "big")
    chars = []
    for _ in range(_SECRET_CHARS):
        number, rest = divmod(number, len(_BASE62))
        chars.append(_BASE62[rest])
    return PREFIX + "".join(chars)


def _columns(record: NamedKeyRecord, digest: bytes) -> Mapping[str, object]:
    key = record.key
    return {
        "id": key.id,
        "name": key.name,
        "digest": digest,
        "scopes": list(key.scopes),
        "max_sessions": key.max_sessions,
        "requests_per_minute": key.requests_per_minute,
        "created": record.created,
        "last_used": record.last_used,
        "profile": msgspec.to_builtins(record.profile),
    }


def _record(row: Row[Any]) -> NamedKeyRecord:
    # A newer version may have stored scopes that this one does not know: they open nothing here.
    scopes = tuple(scope for scope in SCOPES if scope in row.scopes)
    key = NamedKey(row.id, row.name, scopes, row.max_sessions, row.requests_per_minute)
    profile = known_profile(row.profile, SessionProfile, f"key {row.name}")
    return NamedKeyRecord(key, row.created, row.last_used, profile)


def _no_key(name: str) -> NotFound:
    return NotFound(f"there is no key {name[:64]!r}", code="key_not_found")
