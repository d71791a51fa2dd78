"""Opinions of voices in a real database: counted per key, and deleted with the key."""

import asyncio
from pathlib import Path

import pytest

from core.access.named_key import CALLER_KEY
from core.errors import Conflict, NotFound
from devices.registry import voice_ratings as module
from devices.registry.database import open_database
from devices.registry.named_keys import NamedKeys
from devices.registry.voice_ratings import VoiceRatings
from pipeline.speech.voices import VoiceRating
from tests.devices.registry.harness import Moment

pytestmark = pytest.mark.live


def test_opinions_are_counted_for_each_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VOICES", 2)

    async def main() -> None:
        async with open_database(f"sqlite:///{tmp_path}/devices.db") as database:
            keys, ratings = NamedKeys(database, Moment()), VoiceRatings(database)
            await ratings.rate("hibari/heart", is_good=True)
            await ratings.rate("hibari/heart", is_good=True)
            await ratings.rate("hibari/heart", is_good=False)
            await ratings.rate("espeak/de", is_good=False)
            with pytest.raises(Conflict, match="2 voices are rated"):
                await ratings.rate("espeak/fr", is_good=True)
            assert await ratings.ratings() == {
                "espeak/de": VoiceRating(0, 1),
                "hibari/heart": VoiceRating(2, 1),
            }
            record, _ = await keys.add("anna", scopes=("talk",))
            token = CALLER_KEY.set(record.key)
            await ratings.rate("hibari/heart", is_good=False)
            assert await ratings.ratings() == {"hibari/heart": VoiceRating(0, 1)}
            await keys.revoke("anna")
            assert await ratings.ratings() == {}
            with pytest.raises(NotFound, match="revoked"):
                await ratings.rate("hibari/heart", is_good=True)
            CALLER_KEY.reset(token)
            assert len(await ratings.ratings()) == 2

    asyncio.run(main())
