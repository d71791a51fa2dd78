"""Opinions of voices: two counts for each voice and key, in the database of the devices."""

from collections.abc import Mapping

from sqlalchemy import Connection, func, insert, select, update

from core.errors import Conflict
from devices.registry.database import Database
from devices.registry.kept_conversations import check_key
from devices.registry.speakers import caller_of
from devices.registry.tables import voice_ratings
from pipeline.speech.voices import VoiceRating

MAX_VOICES = 1000
"Most voices that one key may rate: more than all engines have together."


class VoiceRatings:
    """Counts good and bad samples. `rate` and `ratings` are about the owner that `CALLER_KEY`
    names."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def rate(self, voice: str, *, is_good: bool) -> None:
        """Counts one more opinion of a voice. `voice`: its id.

        Raises Conflict too_many_voices, NotFound key_not_found, StorageError.
        """
        owner = caller_of()
        is_it = (voice_ratings.c.owner == owner) & (voice_ratings.c.voice == voice)
        column = voice_ratings.c.good if is_good else voice_ratings.c.bad

        def work(connection: Connection) -> None:
            check_key(connection, owner)
            if connection.execute(
                update(voice_ratings).where(is_it).values({column: column + 1})
            ).rowcount:
                return
            is_mine = voice_ratings.c.owner == owner
            counted = select(func.count()).select_from(voice_ratings).where(is_mine)
            if connection.execute(counted).scalar_one() >= MAX_VOICES:
                raise Conflict(f"{MAX_VOICES} voices are rated, the limit", code="too_many_voices")
            row = {"owner": owner, "voice": voice, "good": int(is_good), "bad": int(not is_good)}
            connection.execute(insert(voice_ratings).values(row))

        await self._database.run(work)

    async def ratings(self) -> Mapping[str, VoiceRating]:
        """Returns the counts of the caller's voices by id. Raises StorageError."""
        owner = caller_of()

        def work(connection: Connection) -> Mapping[str, VoiceRating]:
            rows = connection.execute(
                select(voice_ratings)
                .where(voice_ratings.c.owner == owner)
                .order_by(voice_ratings.c.voice)
            )
            return {row.voice: VoiceRating(row.good, row.bad) for row in rows}

        return await self._database.run(work)
