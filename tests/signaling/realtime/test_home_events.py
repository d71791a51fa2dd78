"""The home over the Realtime API: for clients that ask for it, in their language, with the latest
state first."""

import asyncio
import json
from typing import Any

from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.session.settings import SessionConfiguration
from tests.signaling.realtime.fakes import BEGUN, Client, CountingHome, play


def test_the_home_is_sent_if_included_and_skips_to_the_latest_state() -> None:
    client, home = Client(), CountingHome()

    async def slowly() -> None:
        await asyncio.sleep(1)

    def update(**session: Any) -> str:
        return json.dumps({"type": "session.update", "session": {"type": "realtime", **session}})

    async def scene(connection: RealtimeConnection) -> None:
        home.change()
        await asyncio.sleep(1)
        assert client.types == BEGUN
        await connection.receive(update(include=["earshot.home"]))
        await asyncio.sleep(1)
        client.takes = slowly
        for _ in range(5):
            home.change()
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        client.takes = None
        language = {"input": {"transcription": {"language": "de"}}}
        await connection.receive(update(audio=language))
        await asyncio.sleep(1)
        await connection.receive(update(include=[]))
        await asyncio.sleep(1)
        home.change()
        await asyncio.sleep(1)
        assert home.watchers == 0
        connection.close()

    play(client, scene, home=home)
    seen = [event["home"] for event in client.sent if event["type"] == "earshot.home"]
    assert [home["revision"] for home in seen] == [1, 2, 6, 6]
    assert [home["language"] for home in seen] == [None, None, None, "de"]


def test_the_home_is_sent_at_once_if_the_offer_includes_it() -> None:
    client, home = Client(), CountingHome()

    async def scene(connection: RealtimeConnection) -> None:
        await asyncio.sleep(1)
        connection.close()

    play(client, scene, terms=SessionConfiguration(include=frozenset({"earshot.home"})), home=home)
    assert client.types == [*BEGUN, "earshot.home"]
    assert home.watchers == 0
