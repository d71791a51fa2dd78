"""All live sessions of the server: admission, lookup and draining."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from core.access.limits import CapacityLimit, PlaceCounter
from core.access.named_key import (
    CALLER_KEY,
    RESERVED_PLACES,
    KeySessions,
    NamedKey,
    check_sessions,
    places_for_owner,
)
from core.ports import DeviceLocation
from pipeline.conversation.conversation import Conversations
from pipeline.services import SessionServices
from pipeline.session.session import Session
from pipeline.shared.settings import PlayoutPacing, SessionSettings

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 5
"""Seconds that a refused client is asked to wait. Calls last minutes, but on a full server one of
them ends every few seconds."""


@dataclass(frozen=True, slots=True)
class ClientSecretHolder:
    """A client that came with a client secret, not with the server's key."""

    key: bytes = field(repr=False)
    "Digest of the secret. Sessions that were opened with the same secret are counted together."
    max_sessions: int
    "Most sessions that may be open at once with this secret."
    ends_in_s: float | None = None
    "Seconds after which the session ends. None: a session may outlive the secret."


class Sessions:
    """Opens and counts the sessions of all doors."""

    def __init__(
        self,
        services: SessionServices,
        conversations: Conversations,
        max_sessions: int,
        places: PlaceCounter | None = None,
    ) -> None:
        """`places`: counts the sessions of all gateways; None: this process is the only one."""
        self._services, self._conversations = services, conversations
        self._places = CapacityLimit(
            max_sessions,
            "all {limit} sessions are in use",
            retry_after_s=RETRY_AFTER_S,
            name="sessions",
            places=places,
        )
        self._sessions: dict[str, Session] = {}
        self._secret_keys: dict[str, bytes] = {}
        "Session id -> digest of the client secret that opened it (`ClientSecretHolder.key`)."
        self._named_keys: dict[str, NamedKey] = {}
        "Session id -> named key that opened it."
        self.key_sessions = KeySessions(places)
        "Counts the sessions of named keys, also those of doors that have no `Session`."
        self._is_used = asyncio.Event()
        "Set while there is at least one session."
        self._next_change = asyncio.Event()

    @property
    def count(self) -> int:
        """Number of live sessions."""
        return len(self._sessions)

    @property
    def count_of_all(self) -> int:
        """Number of live sessions of all gateways."""
        return self._places.taken_by_all

    def changed(self) -> asyncio.Event:
        """Returns the event that is set when a session next opens or ends."""
        return self._next_change

    def find(self, session_id: str) -> Session | None:
        """Returns the live session with this id, or None."""
        return self._sessions.get(session_id)

    def remembered(self, defaults: SessionSettings, conversation_id: str | None) -> SessionSettings:
        """Returns `defaults`, or the settings that the conversation's profile remembers, if it is
        known."""
        profile = self._conversations.profile_of(conversation_id)
        return profile.apply_to(defaults) if profile else defaults

    async def recall(self, conversation_id: str | None) -> None:
        """Takes over a conversation that another gateway has had. Called before `remembered`."""
        await self._conversations.recall(conversation_id)

    @asynccontextmanager
    async def open(
        self,
        settings: SessionSettings,
        *,
        paced_by: PlayoutPacing,
        conversation_id: str | None = None,
        place: DeviceLocation | None = None,
        door: str = "realtime",
        secret_holder: ClientSecretHolder | None = None,
    ) -> AsyncIterator[Session]:
        """Opens a session that runs while the body of the `async with` runs, and then frees
        everything.

        secret_holder: None when the client came without a client secret. Raises OverloadedError
        server_full, draining or too_many_sessions, and RequestError for settings that are not
        possible.
        """
        await self.recall(conversation_id)
        named_key = CALLER_KEY.get()
        reserved_places = places_for_owner() if secret_holder is None else RESERVED_PLACES
        self._admit(secret_holder, reserved_places)
        conversation = self._conversations.get(conversation_id)
        if place is not None:
            conversation.place = place
            conversation.person_id = place.caller_id or conversation.person_id
        with (
            self._places.take(reserved_places),
            self.key_sessions.take(),
            conversation.keep(),
        ):
            session = Session(settings, conversation, paced_by, self._services)
            self._sessions[session.id] = session
            if secret_holder is not None:
                self._secret_keys[session.id] = secret_holder.key
            if named_key is not None:
                self._named_keys[session.id] = named_key
            self._is_used.set()
            self._report()
            logger.info("= session %s opened (%s), %d live", session.id, door, self.count)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(session.run(), name=session.id)
                    try:
                        await session.running.wait()
                        yield session
                    finally:
                        session.close()
            finally:
                del self._sessions[session.id]
                self._secret_keys.pop(session.id, None)
                self._named_keys.pop(session.id, None)
                if not self._sessions:
                    self._is_used.clear()
                self._report()
                logger.info("= session %s closed, %d live", session.id, self.count)

    def end_all_of(self, named_key: NamedKey) -> None:
        """Ends the sessions that a named key has opened, without waiting."""
        for session_id, opener in self._named_keys.items():
            if opener.id == named_key.id:
                self._sessions[session_id].close()

    async def wait_until_unused(self, quiet_s: float) -> None:
        """Waits until there has been a session, and then none for `quiet_s` seconds."""
        while True:
            await self._is_used.wait()
            await self._places.idle()
            with suppress(TimeoutError):
                async with asyncio.timeout(quiet_s):
                    await self._is_used.wait()
                    continue
            return

    async def drain(self, timeout_s: float) -> None:
        """Takes no new sessions. Lets turns finish for at most `timeout_s` seconds, then ends
        all."""
        self._places.close()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(s.settled() for s in self._sessions.values()))
        except TimeoutError:
            logger.warning(
                "! drain: %d session(s) ended before they were done, after %.0f s",
                self.count,
                timeout_s,
            )
        for session in tuple(self._sessions.values()):
            session.close()
        await self._places.idle()

    def _admit(self, secret_holder: ClientSecretHolder | None, reserved_places: int) -> None:
        self._places.check(reserved_places)
        if secret_holder is not None:
            opened = sum(key == secret_holder.key for key in self._secret_keys.values())
            check_sessions(opened, secret_holder.max_sessions, "this client secret")
        self.key_sessions.check()

    def _report(self) -> None:
        self._services.metrics.gauge("earshot_sessions", self.count)
        self._next_change.set()
        self._next_change = asyncio.Event()
