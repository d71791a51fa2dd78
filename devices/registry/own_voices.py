"""Voices that people made of recordings, in the database of the devices.

Each belongs to the named key that made it, or to the server's owner, whose voices the devices of
the house know, too. The recording is not kept, only the condition that the voice engine made of it.
Conditions stay in the database until the engine needs one; all else is in memory.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from sqlalchemy import Connection, delete, func, insert, select

from core.access.named_key import NamedKey
from core.conversation.ids import new_id
from core.errors import Conflict, NotFound, StorageError
from core.ports import Clock
from devices.registry.database import Database
from devices.registry.kept_conversations import check_key
from devices.registry.speakers import RELOAD_S, caller_of
from devices.registry.tables import own_voices
from pipeline.speech.own_voices import OwnVoice

logger = logging.getLogger(__name__)

MAX_VOICES = 20
"Most voices of one key. Conditions of 15 s take 10 MB each."


class OwnVoiceTable:
    """An `OwnVoiceStore`. Its methods are about the voices of the owner that `CALLER_KEY` names.
    `run` must be active while the server is up."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._voices: Mapping[str, tuple[OwnVoice, ...]] = {}
        "Owner -> voices by name."
        self.on_gone: list[Callable[[str], None]] = []
        "Called with the id of each voice that was deleted, whoever deleted it."

    def list_all(self) -> Sequence[OwnVoice]:
        """Returns the caller's voices by name."""
        return self._voices.get(caller_of(), ())

    def find(self, name: str) -> OwnVoice:
        """Returns a voice of the caller. Raises NotFound voice_not_found."""
        for voice in self.list_all():
            if voice.name == name:
                return voice
        raise _not_found(name)

    async def add(self, name: str, language: str, consent: str, condition: bytes) -> OwnVoice:
        """Adds a voice of the caller.

        Raises Conflict voice_exists or too_many_voices, NotFound key_not_found, StorageError.
        """
        owner = caller_of()
        voice = OwnVoice(new_id("voice"), name, language, consent, self._clock.wall())

        def work(connection: Connection) -> None:
            check_key(connection, owner)
            is_mine = own_voices.c.owner == owner
            same = select(own_voices.c.id).where(is_mine & (own_voices.c.name == name))
            if connection.execute(same).first() is not None:
                raise Conflict(
                    f"there is a voice {name!r} already: delete it first, or choose another name",
                    code="voice_exists",
                    param="name",
                )
            counted = select(func.count()).select_from(own_voices).where(is_mine)
            if (count := connection.execute(counted).scalar_one()) >= MAX_VOICES:
                raise Conflict(
                    f"the key has {count} voices, the limit: delete one first",
                    code="too_many_voices",
                )
            row = {
                "id": voice.id,
                "owner": owner,
                "name": name,
                "language": language,
                "consent": consent,
                "created": voice.created,
                "condition": condition,
            }
            connection.execute(insert(own_voices).values(row))

        await self._database.run(work)
        await self.load()
        logger.info("= a voice was made: %s", voice.id)
        return voice

    async def condition(self, voice: OwnVoice) -> bytes:
        """Returns the condition of a voice. Raises NotFound voice_not_found, StorageError."""
        wanted = select(own_voices.c.condition).where(own_voices.c.id == voice.id)
        condition: bytes | None = await self._database.run(
            lambda connection: connection.execute(wanted).scalar_one_or_none()
        )
        if condition is None:
            raise _not_found(voice.name)
        return bytes(condition)

    async def delete(self, name: str) -> None:
        """Deletes a voice of the caller. Raises NotFound voice_not_found, StorageError."""
        where = (own_voices.c.owner == caller_of()) & (own_voices.c.name == name)
        count = await self._database.run(
            lambda connection: connection.execute(delete(own_voices).where(where)).rowcount
        )
        if not count:
            raise _not_found(name)
        await self.load()

    def forget_owned(self, key: NamedKey) -> None:
        """Drops the voices of a key that was revoked. The database has deleted them already."""
        self._set({owner: them for owner, them in self._voices.items() if owner != key.id})

    async def load(self) -> None:
        """Reads all voices, in place of those in memory. Raises StorageError."""
        self._set(await self._database.run(_read_all))

    async def run(self) -> None:
        """Follows changes by other servers, until cancelled."""
        while True:
            with suppress(StorageError):  # the database logs it, and the next try comes
                await self.load()
            await asyncio.sleep(RELOAD_S)

    def _set(self, voices: Mapping[str, tuple[OwnVoice, ...]]) -> None:
        gone = _ids(self._voices) - _ids(voices)
        self._voices = voices
        for voice_id in gone:
            logger.info("= a voice was deleted: %s", voice_id)
            for forget in self.on_gone:
                forget(voice_id)


def _ids(voices: Mapping[str, tuple[OwnVoice, ...]]) -> set[str]:
    return {voice.id for them in voices.values() for voice in them}


def _read_all(connection: Connection) -> Mapping[str, tuple[OwnVoice, ...]]:
    columns = (column for column in own_voices.c if column.name != "condition")
    found: dict[str, tuple[OwnVoice, ...]] = {}
    for row in connection.execute(select(*columns).order_by(own_voices.c.name)):
        voice = OwnVoice(row.id, row.name, row.language, row.consent, row.created)
        found[row.owner] = (*found.get(row.owner, ()), voice)
    return found


def _not_found(name: str) -> NotFound:
    return NotFound(f"the key has no voice {name[:64]!r}", code="voice_not_found", param="voice")
