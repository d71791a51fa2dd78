"""Named keys in the database: made, found, limited, revoked, and known to several servers."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import insert, select

from core.access.named_key import NamedKey
from core.errors import Conflict, NotFound, OverloadedError, RequestError, StorageError
from devices.fleet.directory import EMPTY_PROFILE, SessionProfile
from devices.registry import named_keys as module
from devices.registry.database import Database, engine_of, migrate, open_database
from devices.registry.named_keys import NamedKeys, new_token
from devices.registry.tables import devices, named_keys
from devices.registry.tokens import digest_of
from tests.devices.registry.harness import Moment

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("postgres")]

Scene = Callable[[NamedKeys, Moment, Database], Awaitable[None]]


def play(url: str, scene: Scene) -> None:
    async def main() -> None:
        clock = Moment()
        async with open_database(url) as database:
            await scene(NamedKeys(database, clock), clock, database)

    asyncio.run(main())


def test_a_key_is_letters_and_digits_of_256_random_bits() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"earshot_[0-9A-Za-z]{43}", token) for token in made)


def test_only_the_digest_of_a_key_is_stored(url: str) -> None:
    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        record, token = await keys.add("anna", ["manage", "talk"], max_sessions=2)
        assert (record.key.name, record.key.scopes) == ("anna", ("talk", "manage"))
        (row,) = await database.run(lambda one: one.execute(select(named_keys)).all())
        assert row.digest == digest_of(token)
        assert token.removeprefix("earshot_") not in repr(row)

    play(url, scene)


def test_a_key_is_found_by_its_token_alone(url: str) -> None:
    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        record, token = await keys.add("anna", ["talk"])
        assert keys.find(token) == record.key
        for other in (token[:-1], f"{token}0", token.upper(), "anna", "", new_token()):
            assert keys.find(other) is None
        again = NamedKeys(database, clock)
        await again.load()
        assert again.find(token) == record.key

    play(url, scene)


def test_a_name_is_used_once_and_is_free_after_its_key_is_revoked(url: str) -> None:
    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        revoked: list[NamedKey] = []
        keys.on_revoked.append(revoked.append)
        record, token = await keys.add("anna", ["talk"])
        with pytest.raises(Conflict, match="'anna' already") as refused:
            await keys.add("anna", ["talk"])
        assert refused.value.code == "key_exists"
        await keys.revoke("anna")
        assert (keys.find(token), revoked) == (None, [record.key])
        with pytest.raises(NotFound, match="no key 'anna'"):
            await keys.revoke("anna")
        renewed, _ = await keys.add("anna", ["talk"])
        assert renewed.key.id != record.key.id

    play(url, scene)


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "-a", "ä", "x" * 65, "a\n"])
def test_a_name_that_would_need_quotes_is_refused(url: str, name: str) -> None:
    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        with pytest.raises(RequestError, match=r"1 to 64 of A-Z a-z 0-9") as refused:
            await keys.add(name, ["talk"])
        assert refused.value.param == "name"

    play(url, scene)


def test_a_profile_is_kept_and_changed_for_new_sessions(url: str) -> None:
    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        profile = SessionProfile(voice="low", language="de", instructions="Be brief.")
        record, token = await keys.add("anna", ["talk"], profile=profile)
        other, _ = await keys.add("ben", ["talk"])
        assert "brief" not in repr(record)
        assert (keys.profile_of(record.key), keys.profile_of(other.key)) == (profile, EMPTY_PROFILE)
        changed = await keys.edit("anna", lambda before: replace(before, voice="", speed=1.25))
        assert changed.profile == replace(profile, voice="", speed=1.25)
        again = NamedKeys(database, clock)
        await again.load()
        assert again.find(token) == record.key
        assert again.profile_of(record.key) == keys.profile_of(record.key) == changed.profile
        with pytest.raises(NotFound, match="no key 'eve'"):
            await keys.edit("eve", lambda before: before)

    play(url, scene)


def test_a_key_needs_a_scope_and_keys_are_limited(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 1)

    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        with pytest.raises(RequestError, match="at least one scope"):
            await keys.add("anna", [])
        await keys.add("anna", ["talk"])
        with pytest.raises(Conflict, match="there are 1 keys, the limit") as refused:
            await keys.add("ben", ["talk"])
        assert refused.value.code == "too_many_keys"

    play(url, scene)


def test_requests_above_the_limit_are_told_when_to_come_again(url: str) -> None:
    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        limited, _ = await keys.add("anna", ["talk"], requests_per_minute=3)
        free, _ = await keys.add("ben", ["talk"])
        for _ in range(3):
            keys.count_request(limited.key)
        with pytest.raises(OverloadedError, match="'anna' may make 3 requests a minute") as refused:
            keys.count_request(limited.key)
        assert (refused.value.code, refused.value.retry_after_s) == ("too_many_requests", 20)
        for _ in range(100):
            keys.count_request(free.key)
        await keys.load()  # another server's change does not forget what was counted
        with pytest.raises(OverloadedError):
            keys.count_request(limited.key)
        clock.go_on(timedelta(seconds=20))
        keys.count_request(limited.key)
        with pytest.raises(OverloadedError):
            keys.count_request(limited.key)

    play(url, scene)


def test_the_last_use_is_known_at_once_and_stored_once_a_minute(url: str) -> None:
    async def stored(database: Database) -> object:
        chosen = select(named_keys.c.last_used)
        return await database.run(lambda one: one.execute(chosen).scalar_one())

    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        record, _ = await keys.add("anna", ["talk"])
        assert [one.last_used for one in keys.all_keys()] == [None]
        first = clock.wall()
        keys.count_request(record.key)
        assert [one.last_used for one in keys.all_keys()] == [first]
        await keys.store_last_used()
        assert await stored(database) == first
        clock.go_on(timedelta(seconds=30))
        keys.count_request(record.key)
        await keys.store_last_used()
        assert await stored(database) == first
        assert [one.last_used for one in keys.all_keys()] == [clock.wall()]
        clock.go_on(timedelta(seconds=30))
        await keys.store_last_used()
        assert await stored(database) == first + timedelta(seconds=30)

    play(url, scene)


def test_a_key_that_another_server_makes_or_revokes_counts_here(url: str) -> None:
    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        other, change = NamedKeys(database, clock), asyncio.Event()
        revoked = asyncio.get_running_loop().create_future()
        keys.on_revoked.append(revoked.set_result)
        record, token = await other.add("anna", ["talk"])
        await keys.load()
        assert keys.find(token) == record.key
        following = asyncio.create_task(keys.run(lambda: change))
        await other.revoke("anna")
        change.set()
        assert await asyncio.wait_for(revoked, 10) == record.key
        assert keys.find(token) is None
        following.cancel()
        await asyncio.wait([following])

    play(url, scene)


def test_keys_in_memory_stay_valid_while_the_database_fails(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        record, token = await keys.add("anna", ["talk"])

        async def fail(_: object) -> None:
            raise StorageError("gone")

        monkeypatch.setattr(database, "run", fail)
        with pytest.raises(StorageError):
            await keys.load()
        with pytest.raises(StorageError):
            await keys.revoke("anna")
        assert keys.find(token) == record.key

    play(url, scene)


def test_a_scope_of_a_newer_version_opens_nothing(url: str) -> None:
    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        row = {"id": "key_1", "name": "anna", "digest": digest_of("earshot_x")}
        values = {**row, "scopes": ["talk", "fly"], "created": clock.wall()}
        await database.run(lambda one: one.execute(insert(named_keys).values(values)))
        await keys.load()
        (record,) = keys.all_keys()
        assert record.key.scopes == ("talk",)

    play(url, scene)


def test_a_database_without_named_keys_gets_the_table_and_keeps_its_devices(url: str) -> None:
    engine, at = engine_of(url), Moment().at
    with engine.begin() as connection:
        migrate(connection, "0004")
        row = {"id": "dev_1", "kind": "willow", "hardware_id": "aa", "name": "a", "area": ""}
        seen = {"first_seen": at, "last_seen": at, "standing": "approved", "profile": {}}
        connection.execute(insert(devices).values({**row, **seen}))
    engine.dispose()

    async def scene(keys: NamedKeys, clock: Moment, database: Database) -> None:
        await keys.load()
        assert keys.all_keys() == []
        await keys.add("anna", ["talk"])
        names = await database.run(lambda one: one.execute(select(devices.c.id)).scalars().all())
        assert names == ["dev_1"]

    play(url, scene)
