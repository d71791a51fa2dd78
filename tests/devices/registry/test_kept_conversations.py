"""Conversations that persons keep: whose they are, how many, how long, and that they go."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from core.access.named_key import CALLER_KEY, NamedKey
from core.errors import Conflict, Forbidden, NotFound
from devices.registry import kept_conversations as module
from devices.registry.database import Database, open_database
from devices.registry.kept_conversations import KeptConversations, KeptToolCall, KeptTurn
from devices.registry.named_keys import NamedKeys
from devices.registry.tables import kept_turns
from tests.devices.registry.harness import Moment

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("postgres")]

Scene = Callable[[KeptConversations, Moment, Database], Awaitable[None]]


def play(url: str, scene: Scene, days: int = 30) -> None:
    async def main() -> None:
        clock = Moment()
        async with open_database(url) as database:
            await scene(KeptConversations(database, clock, days), clock, database)

    asyncio.run(main())


@contextmanager
def caller(key: NamedKey | None) -> Iterator[None]:
    token = CALLER_KEY.set(key)
    try:
        yield
    finally:
        CALLER_KEY.reset(token)


def turn(number: int, said: str = "", reply: str = "") -> KeptTurn:
    return KeptTurn(f"item_{number}", said or f"question {number}", reply or f"answer {number}")


async def keep(kept: KeptConversations, name: str, *turns: KeptTurn) -> None:
    await kept.begin(name)
    await kept.add(name, turns or [turn(1)])


async def names(kept: KeptConversations) -> list[str]:
    return [one.id for one in await kept.list_all()]


def test_two_browsers_that_write_at_once_lose_nothing(url: str) -> None:
    async def scene(kept: KeptConversations, clock: Moment, database: Database) -> None:
        await kept.begin("one")
        await asyncio.gather(*(kept.add("one", [turn(number)]) for number in range(8)))
        await kept.add("one", [turn(3, reply="the whole answer")])
        found = {one.id: one for one in await kept.read("one")}
        assert len(found) == 8
        assert found["item_3"].reply == "the whole answer"
        assert found["item_4"] == turn(4)

    play(url, scene)


def test_turns_come_back_in_order_and_the_first_words_are_the_title(url: str) -> None:
    async def scene(kept: KeptConversations, clock: Moment, database: Database) -> None:
        await keep(kept, "old", KeptTurn("r", "", "The timer is over."), turn(2), turn(1))
        clock.go_on(timedelta(minutes=1))
        await keep(kept, "new", turn(1, said="x" * 200))
        assert [one.id for one in await kept.read("old")] == ["r", "item_2", "item_1"]
        listed = await kept.list_all()
        assert [(one.id, one.title) for one in listed] == [
            ("new", "x" * module.TITLE_CHARS),
            ("old", "question 2"),
        ]

    play(url, scene)


def test_tool_calls_come_back_with_their_turn_and_count_as_its_bytes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched = KeptToolCall("HassTurnOn", '{"name": "K\u00fcche \\u0000"}', '{"targets": []}')
    interrupted = KeptToolCall("HassTurnOff", "{}")

    async def scene(kept: KeptConversations, clock: Moment, database: Database) -> None:
        called = KeptTurn("item_1", "light", "On.", (switched, interrupted))
        await keep(kept, "one", called, turn(2))
        assert await kept.read("one") == [called, turn(2)]
        await kept.add("one", [KeptTurn("item_1", "light", "On.", (interrupted,))])
        assert (await kept.read("one"))[0].tool_calls == (interrupted,)
        monkeypatch.setattr(module, "MAX_CONVERSATION_BYTES", called.size_bytes)
        await keep(kept, "two", turn(1), called)
        assert await kept.read("two") == [called]

    play(url, scene)


def test_a_key_sees_and_deletes_only_what_it_keeps(url: str) -> None:
    async def scene(kept: KeptConversations, clock: Moment, database: Database) -> None:
        keys = NamedKeys(database, clock)
        anna = (await keys.add("anna", ["talk"]))[0].key
        await keep(kept, "mine")
        with caller(anna):
            assert await names(kept) == []
            with pytest.raises(NotFound) as refused:
                await kept.read("mine")
            assert refused.value.code == "conversation_not_found"
            with pytest.raises(NotFound):
                await kept.add("mine", [turn(2)])
            await keep(kept, "mine", turn(5))
            await keep(kept, "hers")
            await kept.delete("mine")
            assert await kept.delete_all() == ["hers"]
        assert await kept.read("mine") == [turn(1)]

    play(url, scene)


def test_a_revoked_key_leaves_nothing_and_writes_nothing(url: str) -> None:
    async def scene(kept: KeptConversations, clock: Moment, database: Database) -> None:
        keys = NamedKeys(database, clock)
        anna = (await keys.add("anna", ["talk"]))[0].key
        with caller(anna):
            await keep(kept, "hers")
        await keys.revoke("anna")
        assert await database.run(lambda one: one.execute(select(kept_turns)).all()) == []
        with caller(anna), pytest.raises(NotFound):
            await kept.begin("hers")

    play(url, scene)


def test_what_was_deleted_elsewhere_stays_deleted(url: str) -> None:
    async def scene(kept: KeptConversations, clock: Moment, database: Database) -> None:
        await keep(kept, "one")
        await kept.delete("one")
        with pytest.raises(NotFound):
            await kept.add("one", [turn(2)])
        assert await names(kept) == []

    play(url, scene)


def test_a_conversation_goes_some_days_after_its_last_change(url: str) -> None:
    async def scene(kept: KeptConversations, clock: Moment, database: Database) -> None:
        await keep(kept, "one")
        clock.go_on(timedelta(days=29))
        await kept.expire()
        await kept.add("one", [turn(2)])
        clock.go_on(timedelta(days=29))
        assert await names(kept) == ["one"]
        clock.go_on(timedelta(days=2))
        assert await names(kept) == []  # even before the next run deletes it
        with pytest.raises(NotFound):
            await kept.read("one")
        await kept.expire()
        count = select(func.count()).select_from(kept_turns)
        assert await database.run(lambda one: one.execute(count).scalar_one()) == 0

    play(url, scene)


def test_limits_drop_what_is_oldest(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TURNS", 3)
    monkeypatch.setattr(module, "MAX_PER_OWNER", 2)

    async def scene(kept: KeptConversations, clock: Moment, database: Database) -> None:
        await keep(kept, "a", *(turn(number) for number in range(5)))
        assert [one.id for one in await kept.read("a")] == ["item_2", "item_3", "item_4"]
        for name in ("b", "c"):
            clock.go_on(timedelta(minutes=1))
            await keep(kept, name)
        assert await names(kept) == ["c", "b"]
        monkeypatch.setattr(module, "MAX_CONVERSATION_BYTES", 50)
        await kept.add("c", [turn(7, said="ä" * 10), turn(8, said="ä" * 10)])
        assert [one.id for one in await kept.read("c")] == ["item_8"]
        monkeypatch.setattr(module, "MAX_SERVER_BYTES", 1)
        with pytest.raises(Conflict) as refused:
            await kept.add("c", [turn(9)])
        assert refused.value.code == "kept_conversations_full"

    play(url, scene)


def test_a_server_that_keeps_none_says_so_and_deletes_what_it_had(url: str) -> None:
    async def fill(kept: KeptConversations, clock: Moment, database: Database) -> None:
        await keep(kept, "one")

    async def scene(kept: KeptConversations, clock: Moment, database: Database) -> None:
        with pytest.raises(Forbidden) as refused:
            await kept.begin("two")
        assert refused.value.code == "conversations_not_kept"
        clock.go_on(timedelta(seconds=1))
        await kept.expire()
        assert await database.run(lambda one: one.execute(select(kept_turns)).all()) == []

    play(url, fill)
    play(url, scene, days=0)


def test_deleted_words_are_in_no_file_and_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    words = b"the code of the safe"

    async def scene(kept: KeptConversations, clock: Moment, database: Database) -> None:
        for number in range(3):
            call = KeptToolCall("Note", f'{{"text": "{words.decode()}"}}', words.decode())
            await keep(kept, f"c{number}", KeptTurn("item_1", words.decode(), "", (call,)))
        await kept.delete_all()

    play(f"sqlite:///{tmp_path}/devices.db", scene)
    files = list(tmp_path.iterdir())
    assert files
    assert not any(words in file.read_bytes() for file in files)
    assert words.decode() not in caplog.text
