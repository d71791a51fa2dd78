"""Sessions of clients whose revision of MCP has them."""

import asyncio
import secrets
from dataclasses import dataclass, field

from core.access.named_key import CALLER_KEY, NamedKey, places_for_owner
from core.errors import OverloadedError
from core.ports import Clock
from web.mcp.messages import MessageId

MAX_SESSIONS = 64
"Most sessions of all keys together. One costs less than 1 kB, and no house has more clients."

MAX_SESSIONS_PER_KEY = 16
"""Most sessions of one key. Many clients never end theirs. So a new session ends the one that was
unused longest, whose client then begins again."""

IDLE_S = 12 * 3600.0
"Seconds after which an unused session ends."

RETRY_AFTER_S = 60

ID_BYTES = 24
"Random bytes of an id. Nobody guesses it, and without its key it opens nothing."


@dataclass(slots=True)
class McpSession:
    """A session of a client: its revision of the protocol, its running calls and its owner."""

    id: str
    owner_id: str
    "Id of the named key that began it; empty: the server's own key, or none."
    revision: str
    used_at: float
    running: dict[MessageId, asyncio.Timeout] = field(default_factory=dict)
    "Running calls by the ids of their requests. A timeout that expires cancels its call."

    def cancel(self, message_id: MessageId) -> None:
        """Cancels a call. Does nothing if it is over."""
        if (timeout := self.running.get(message_id)) is not None:
            timeout.reschedule(asyncio.get_running_loop().time())


class McpSessions:
    """The sessions of all clients."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[str, McpSession] = {}
        "By id; the one that was unused longest comes first."

    @property
    def count(self) -> int:
        """Number of sessions."""
        return len(self._sessions)

    def begin(self, revision: str) -> McpSession:
        """Begins a session of the caller. Raises OverloadedError."""
        now, owner_id = self._clock.now(), _caller_id()
        for session in [s for s in self._sessions.values() if now - s.used_at > IDLE_S]:
            self._end(session)
        own = [session for session in self._sessions.values() if session.owner_id == owner_id]
        is_full = len(self._sessions) >= MAX_SESSIONS - places_for_owner()
        if own and (is_full or len(own) >= MAX_SESSIONS_PER_KEY):
            self._end(own[0])
        elif is_full:
            raise OverloadedError(
                f"{len(self._sessions)} MCP sessions are open, the limit",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_sessions",
            )
        session = McpSession(secrets.token_urlsafe(ID_BYTES), owner_id, revision, now)
        self._sessions[session.id] = session
        return session

    def find(self, session_id: str) -> McpSession | None:
        """Returns the caller's session, and counts it as used; None: the caller has none with this
        id."""
        session = self._sessions.get(session_id)
        if session is None or session.owner_id != _caller_id():
            return None
        session.used_at = self._clock.now()
        self._sessions[session.id] = self._sessions.pop(session.id)
        return session

    def end(self, session_id: str) -> bool:
        """Ends the caller's session, and cancels its calls. Returns False if the caller has none
        with this id."""
        session = self.find(session_id)
        if session is not None:
            self._end(session)
        return session is not None

    def end_all_of(self, key: NamedKey) -> None:
        """Ends the sessions of a key."""
        for session in [s for s in self._sessions.values() if s.owner_id == key.id]:
            self._end(session)

    def _end(self, session: McpSession) -> None:
        del self._sessions[session.id]
        for message_id in tuple(session.running):
            session.cancel(message_id)


def _caller_id() -> str:
    key = CALLER_KEY.get()
    return key.id if key is not None else ""
