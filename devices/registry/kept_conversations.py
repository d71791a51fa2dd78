"""Conversations that persons keep on the server, in the database of the devices: the text of both
sides, and the calls of the server's tools.

Each belongs to the named key of the request, or to the server's owner. Turns are only added, so two
browsers that write into one conversation do not overwrite each other.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from core.access.named_key import CALLER_KEY
from core.conversation.items import utf8_bytes
from core.errors import Conflict, Forbidden, NotFound, StorageError
from core.ports import Clock
from devices.registry.database import Database
from devices.registry.tables import (
    kept_conversations,
    kept_turns,
    named_keys,
    own_voices,
    speakers,
    voice_ratings,
)

logger = logging.getLogger(__name__)

MAX_PER_OWNER = 100
"""Limit of conversations per owner: a list that a person can read. Those unchanged for the longest
time are deleted first."""

MAX_TURNS = 200
"Limit of turns per conversation, as many as the page shows. The oldest are deleted first."

MAX_CONVERSATION_BYTES = 2**20
"Limit of UTF-8 bytes per conversation, the same as in memory. The oldest turns are deleted first."

MAX_OWNER_BYTES = 4 * 2**20
"""Limit of UTF-8 bytes per owner: some months of talking. Conversations unchanged for the longest
time are deleted first."""

MAX_SERVER_BYTES = 128 * 2**20
"""Limit of UTF-8 bytes of all owners: half of what one file of a backup may have. Above it, the
server adds nothing."""

EXPIRY_INTERVAL_S = 3600.0
"Interval at which old conversations are deleted, in seconds."

TITLE_CHARS = 80
"Length of a title in characters: one line on a phone."

_kept, _turns = kept_conversations.c, kept_turns.c


@dataclass(frozen=True, slots=True)
class KeptToolCall:
    """A call of one of the server's tools."""

    name: str
    arguments: str
    "A JSON object."
    output: str | None = None
    "None: the call gave no result."


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """One turn: the words of the user and of the assistant, and the tool calls between them. One of
    the texts may be empty."""

    id: str
    "The server's id of the user's message, or of the response if there was none."
    said: str
    reply: str
    tool_calls: tuple[KeptToolCall, ...] = ()
    "In the order in which they were made."

    @property
    def size_bytes(self) -> int:
        """UTF-8 bytes of its texts and of its tool calls."""
        calls = ((call.name, call.arguments, call.output or "") for call in self.tool_calls)
        return sum(map(utf8_bytes, (self.said, self.reply, *chain.from_iterable(calls))))


@dataclass(frozen=True, slots=True)
class KeptConversationSummary:
    """Entry of the list of kept conversations."""

    id: str
    title: str
    "The first words that are kept of it; empty if there are none yet."
    changed: datetime


class KeptConversations:
    """All conversations that are kept. Each call is about those of the owner that `CALLER_KEY`
    names."""

    def __init__(self, database: Database, clock: Clock, days: int) -> None:
        """days: how long a conversation is kept after its last change. 0: nothing is kept."""
        self._database, self._clock, self._days = database, clock, days

    @property
    def days(self) -> int:
        """Days for which a conversation is kept after its last change. 0: nothing is kept."""
        return self._days

    async def list_all(self) -> Sequence[KeptConversationSummary]:
        """Returns the caller's conversations, the latest first. Raises StorageError."""
        owner, since = _caller(), self._cutoff()

        def work(connection: Connection) -> Sequence[KeptConversationSummary]:
            mine = (_kept.owner == owner) & (_kept.changed >= since)
            rows = connection.execute(
                select(kept_conversations).where(mine).order_by(_kept.changed.desc(), _kept.id)
            )
            return [
                KeptConversationSummary(row.id, _title(connection, owner, row.id), row.changed)
                for row in rows.all()
            ]

        return await self._database.run(work)

    async def read(self, conversation_id: str) -> Sequence[KeptTurn]:
        """Returns the turns of a conversation, the oldest first. Raises NotFound for one that is
        not kept, also if another key keeps one with this id; StorageError."""
        owner, since = _caller(), self._cutoff()

        def work(connection: Connection) -> Sequence[KeptTurn]:
            found = select(_kept.id).where(
                _is_conversation(owner, conversation_id) & (_kept.changed >= since)
            )
            if connection.execute(found).one_or_none() is None:
                raise _not_found(conversation_id)
            mine = (
                select(kept_turns)
                .where(_is_turn_of(owner, conversation_id))
                .order_by(_turns.number)
            )
            return [_turn(row) for row in connection.execute(mine)]

        return await self._database.run(work)

    async def begin(self, conversation_id: str) -> None:
        """Begins to keep a conversation; does nothing for one that is already kept. If there are
        too many, those unchanged for the longest time are deleted.

        Raises Forbidden conversations_not_kept if the server keeps none, Conflict
        kept_conversations_full, StorageError.
        """
        self._check_allowed()
        owner, now = _caller(), self._clock.wall()

        def work(connection: Connection) -> None:
            check_key(connection, owner)
            _check_room(connection)
            if _find(connection, owner, conversation_id) is None:
                row = {"owner": owner, "id": conversation_id, "changed": now}
                connection.execute(
                    insert(kept_conversations).values({**row, "turn_count": 0, "size_bytes": 0})
                )
            _drop_oldest(connection, owner, kept_id=conversation_id)

        await self._database.run(work)

    async def add(self, conversation_id: str, turns: Sequence[KeptTurn]) -> None:
        """Adds turns at the end. A turn with a known id takes the place of the former one.

        Raises NotFound for a conversation that is not kept, so that one which was deleted elsewhere
        stays deleted; Forbidden conversations_not_kept, Conflict kept_conversations_full,
        StorageError.
        """
        self._check_allowed()
        owner, now = _caller(), self._clock.wall()

        def work(connection: Connection) -> None:
            check_key(connection, owner)
            _check_room(connection)
            count = _find(connection, owner, conversation_id)
            if count is None:
                raise _not_found(conversation_id)
            mine = _is_turn_of(owner, conversation_id)
            for turn in turns:
                calls = [asdict(call) for call in turn.tool_calls]
                values = {"said": turn.said, "reply": turn.reply, "tool_calls": calls}
                same = mine & (_turns.id == turn.id)
                if connection.execute(update(kept_turns).where(same).values(values)).rowcount:
                    continue
                count += 1
                row = {"owner": owner, "conversation_id": conversation_id, "id": turn.id}
                connection.execute(insert(kept_turns).values({**row, **values, "number": count}))
            changes = {
                "changed": now,
                "turn_count": count,
                "size_bytes": _shorten(connection, mine),
            }
            where = _is_conversation(owner, conversation_id)
            connection.execute(update(kept_conversations).where(where).values(changes))
            _drop_oldest(connection, owner, kept_id=conversation_id)

        await self._database.run(work)

    async def delete(self, conversation_id: str) -> None:
        """Deletes a conversation of the caller; does nothing for one that is not kept. Raises
        StorageError."""
        where = _is_conversation(_caller(), conversation_id)
        await self._database.run(
            lambda connection: connection.execute(delete(kept_conversations).where(where))
        )

    async def delete_all(self) -> Sequence[str]:
        """Deletes all conversations of the caller, and returns their ids. Raises StorageError."""
        mine = _kept.owner == _caller()

        def work(connection: Connection) -> Sequence[str]:
            ids = connection.execute(select(_kept.id).where(mine)).scalars().all()
            connection.execute(delete(kept_conversations).where(mine))
            return ids

        return await self._database.run(work)

    async def run(self) -> None:
        """Deletes conversations that are older than `days`, until cancelled."""
        while True:
            with suppress(StorageError):  # the database logs it, and the next try comes
                await self.expire()
            await asyncio.sleep(EXPIRY_INTERVAL_S)

    async def expire(self) -> None:
        """Deletes what was kept long enough, of all keys. Raises StorageError."""
        old = _kept.changed < self._cutoff()
        count = await self._database.run(
            lambda connection: connection.execute(delete(kept_conversations).where(old)).rowcount
        )
        if count:
            logger.info("= %d kept conversations were deleted: older than history.days", count)

    def _cutoff(self) -> datetime:
        return self._clock.wall() - timedelta(days=self._days)

    def _check_allowed(self) -> None:
        if not self._days:
            raise Forbidden(
                "this server keeps no conversations: history.days is 0",
                code="conversations_not_kept",
            )


def delete_of_key(connection: Connection, key_id: str) -> None:
    """Deletes what a named key keeps, in the transaction that revokes the key."""
    connection.execute(delete(kept_conversations).where(_kept.owner == key_id))
    connection.execute(delete(speakers).where(speakers.c.owner == key_id))
    connection.execute(delete(voice_ratings).where(voice_ratings.c.owner == key_id))
    connection.execute(delete(own_voices).where(own_voices.c.owner == key_id))


def _caller() -> str:
    key = CALLER_KEY.get()
    return "" if key is None else key.id


def _is_conversation(owner: str, conversation_id: str) -> ColumnElement[bool]:
    return (_kept.owner == owner) & (_kept.id == conversation_id)


def _is_turn_of(owner: str, conversation_id: str) -> ColumnElement[bool]:
    return (_turns.owner == owner) & (_turns.conversation_id == conversation_id)


def _turn(row: Row[Any]) -> KeptTurn:
    calls = tuple(KeptToolCall(**call) for call in row.tool_calls)
    return KeptTurn(row.id, row.said, row.reply, calls)


def _not_found(conversation_id: str) -> NotFound:
    return NotFound(
        f"no conversation {conversation_id[:64]!r} is kept", code="conversation_not_found"
    )


def _find(connection: Connection, owner: str, conversation_id: str) -> int | None:
    """Returns the number of turns so far, and locks the conversation; None: it is not kept."""
    found = (
        select(_kept.turn_count).where(_is_conversation(owner, conversation_id)).with_for_update()
    )
    return connection.execute(found).scalar_one_or_none()


def check_key(connection: Connection, owner: str) -> None:
    """Raises NotFound for a key that was revoked meanwhile: nobody could delete what it keeps."""
    key = select(named_keys.c.id).where(named_keys.c.id == owner)
    if owner and connection.execute(key).one_or_none() is None:
        raise NotFound("the key was revoked", code="key_not_found")


def _check_room(connection: Connection) -> None:
    """Raises Conflict kept_conversations_full."""
    size_bytes = connection.execute(select(func.sum(_kept.size_bytes))).scalar_one() or 0
    if size_bytes > MAX_SERVER_BYTES:
        raise Conflict(
            f"the server keeps {MAX_SERVER_BYTES} bytes of conversations, the limit: delete some",
            code="kept_conversations_full",
        )


def _title(connection: Connection, owner: str, conversation_id: str) -> str:
    first = (
        select(_turns.said)
        .where(_is_turn_of(owner, conversation_id) & (_turns.said != ""))
        .order_by(_turns.number)
        .limit(1)
    )
    return (connection.execute(first).scalar_one_or_none() or "")[:TITLE_CHARS]


def _shorten(connection: Connection, mine: ColumnElement[bool]) -> int:
    """Deletes the oldest turns above the limits of one conversation. Returns its UTF-8 bytes."""
    rows = connection.execute(select(kept_turns).where(mine).order_by(_turns.number.desc())).all()
    size_bytes = 0
    for index, row in enumerate(rows):
        turn_bytes = _turn(row).size_bytes
        if index == MAX_TURNS or size_bytes + turn_bytes > MAX_CONVERSATION_BYTES:
            connection.execute(delete(kept_turns).where(mine & (_turns.number <= row.number)))
            break
        size_bytes += turn_bytes
    return size_bytes


def _drop_oldest(connection: Connection, owner: str, *, kept_id: str) -> None:
    """Deletes the conversations above the limits of one owner, those unchanged for the longest time
    first, but never the one that is written now."""
    rows = connection.execute(
        select(_kept.id, _kept.size_bytes)
        .where((_kept.owner == owner) & (_kept.id != kept_id))
        .order_by(_kept.changed.desc())
    ).all()
    size_bytes = 0
    # the conversation that is written now counts first, with its largest size
    for index, row in enumerate(rows, start=2):
        size_bytes += row.size_bytes
        if index > MAX_PER_OWNER or size_bytes > MAX_OWNER_BYTES - MAX_CONVERSATION_BYTES:
            connection.execute(delete(kept_conversations).where(_is_conversation(owner, row.id)))
