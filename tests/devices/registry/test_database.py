"""Migrations from any version to this one, and failures of databases."""

import asyncio
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, column, insert, inspect, table, text
from sqlalchemy.exc import IntegrityError

from core.errors import ConfigError, StorageError
from devices.registry import database as database_file
from devices.registry.database import Database, engine_of, migrate, open_database
from devices.registry.kept_conversations import KeptConversations, KeptTurn
from devices.registry.tables import devices, kept_conversations, metadata
from tests.devices.registry.harness import Moment, contact, known
from tests.devices.registry.postgres import Postgres
from tests.ports import reserved_port

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("postgres")]


def _differences(connection: Connection) -> Sequence[Any]:
    found: Sequence[Any] = compare_metadata(MigrationContext.configure(connection), metadata)
    return found


def test_the_migrations_create_the_tables_of_the_code(url: str) -> None:
    async def main() -> None:
        async with open_database(url) as database:
            assert await database.run(_differences) == []

    asyncio.run(main())


def test_a_database_of_the_previous_version_keeps_its_data(url: str) -> None:
    engine = engine_of(url)
    row = {"id": "dev_1", "kind": "willow", "hardware_id": "aa", "name": "Küche", "area": "k"}
    said = {"standing": "approved", "profile": {"volume": 3}, "board": "", "firmware": ""}
    at = Moment().at
    with engine.begin() as connection:
        migrate(connection, "0001")
        assert "settings" not in inspect(connection).get_table_names()
        seen = {"address": "", "first_seen": at, "last_seen": at}
        connection.execute(insert(devices).values(**row, **said, **seen))
    engine.dispose()

    async def main() -> None:
        async with known(url) as here:
            (device,) = await here.registry.all_devices()
            assert (device.name, device.profile.volume, device.last_seen) == ("Küche", 3, at)
            await here.settings.write("a", 1, device.id)

    asyncio.run(main())


def test_turns_of_a_version_without_tool_calls_are_still_kept(url: str) -> None:
    engine = engine_of(url)
    of = {"owner": "", "conversation_id": "one"}
    said = {"id": "item_1", "number": 1, "said": "turn on the light", "reply": "It is on."}
    kept = {"owner": "", "id": "one", "changed": Moment().at, "turn_count": 1, "size_bytes": 26}
    with engine.begin() as connection:
        migrate(connection, "0006")
        connection.execute(insert(kept_conversations).values(kept))
        former = table("kept_turns", *map(column, (*of, *said)))
        connection.execute(insert(former).values({**of, **said}))
    engine.dispose()

    async def main() -> None:
        async with open_database(url) as database:
            conversations = KeptConversations(database, Moment(), 30)
            (turn,) = await conversations.read("one")
            assert turn == KeptTurn("item_1", "turn on the light", "It is on.")

    asyncio.run(main())


def test_a_migration_that_fails_leaves_nothing_behind(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(url)

    def fail(connection: Connection) -> None:
        migrate(connection)
        raise RuntimeError

    with pytest.raises(RuntimeError), engine.begin() as connection:
        fail(connection)
    with engine.begin() as connection:
        assert inspect(connection).get_table_names() == []
        migrate(connection)
        assert _differences(connection) == []
    engine.dispose()


def test_servers_that_start_at_once_migrate_once(url: str) -> None:
    async def main() -> None:
        servers = [Database(engine_of(url)) for _ in range(4)]
        found = await asyncio.gather(*(one.run(_differences) for one in servers))
        assert found == 4 * [[]]
        for one in servers:
            await one.close()

    asyncio.run(main())


def test_a_database_of_a_newer_version_is_left_alone(url: str) -> None:
    async def main() -> None:
        async with open_database(url) as database:
            await database.run(
                lambda one: one.execute(text("UPDATE alembic_version SET version_num = '9999'"))
            )
        async with open_database(url) as database:
            with pytest.raises(StorageError, match=r"newer version of Earshot .*'9999'.*'0016'"):
                await database.run(_differences)

    asyncio.run(main())


def test_a_failed_transaction_is_rolled_back(url: str) -> None:
    async def main() -> None:
        async with open_database(url) as database:

            def half(connection: Connection) -> None:
                value = {"owner": "", "key": "a", "value": "1"}
                connection.execute(text(_INSERT), value)
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await database.run(half)
            count = await database.run(
                lambda one: one.execute(text("SELECT count(*) FROM settings")).scalar_one()
            )
            assert count == 0

    asyncio.run(main())


_INSERT = "INSERT INTO settings (owner, key, value) VALUES (:owner, :key, :value)"


def test_a_violated_constraint_is_retried_and_then_fails(url: str) -> None:
    tries = 0

    def work(_: Connection) -> None:
        nonlocal tries
        tries += 1
        raise IntegrityError("INSERT", {}, Exception("taken"))

    async def main() -> None:
        async with open_database(url) as database:
            with pytest.raises(StorageError):
                await database.run(work)

    asyncio.run(main())
    assert tries == 3


def test_a_hanging_database_fails_waiting_calls_and_serves_later_ones(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    async def main() -> None:
        async with open_database(url) as database:
            monkeypatch.setattr(database_file, "CALL_TIMEOUT_S", 0.05)
            for work in (lambda _: goes_on.wait(), lambda _: None):
                with pytest.raises(StorageError, match="does not answer"):
                    await database.run(work)
            goes_on.set()
            monkeypatch.setattr(database_file, "CALL_TIMEOUT_S", 10)
            assert await database.run(_differences) == []

    asyncio.run(main())


def test_the_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    async def main() -> None:
        async with known(f"sqlite:///{tmp_path}/new/devices.db") as here:
            await here.registry.check_in(contact())
            modes = {stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "new").iterdir()}
            assert modes == {0o600}
            assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700

    asyncio.run(main())


def test_files_readable_by_others_are_tightened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/devices.db"
    files = [tmp_path / f"devices.db{end}" for end in ("", "-shm", "-wal")]

    async def main() -> None:
        async with known(url) as former:  # holds its files open, as a server that was killed
            await former.registry.check_in(contact())
            for file in files:
                file.chmod(0o666)
            async with known(url) as here:
                assert len(await here.registry.all_devices()) == 1
                assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}

    asyncio.run(main())
    for file in files:
        assert f"{file} could be used by others (mode 0666)" in caplog.text


def test_a_database_of_another_user_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "devices.db-wal"
    file.touch()
    if os.geteuid() == 0:
        os.chown(file, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)

    async def main() -> None:
        async with open_database(f"sqlite:///{tmp_path}/devices.db"):
            pass

    with pytest.raises(
        ConfigError, match=r"^config\.devices\.database: .* belongs to another user"
    ):
        asyncio.run(main())


def test_opening_the_database_is_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in-the-way").touch()

    async def main() -> None:
        async with known(f"sqlite:///{tmp_path}/in-the-way/devices.db") as here:
            assert "devices are refused until" in caplog.text
            with pytest.raises(StorageError) as error:
                await here.registry.check_in(contact())
            assert error.value.code == "storage_failed"
            (tmp_path / "in-the-way").unlink()
            assert (await here.registry.check_in(contact())).standing == "new"

    asyncio.run(main())


def test_a_file_that_is_not_a_database_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "devices.db").write_bytes(b"not a database" * 100)

    async def main() -> None:
        async with known(f"sqlite:///{tmp_path}/devices.db") as here:
            with pytest.raises(StorageError):
                await here.registry.all_devices()

    asyncio.run(main())
    assert "not a database" in caplog.text


@pytest.mark.parametrize(
    "wrong", ["devices.db", "nosuch://user:hunter2@host/x", "postgresql+nosuch://u:hunter2@h/x"]
)
def test_an_impossible_url_is_fatal_and_its_password_hidden(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"config\.devices\.database") as error:
        engine_of(wrong)
    assert "hunter2" not in str(error.value)


def test_an_unreachable_server_is_named_without_its_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        with reserved_port() as port:
            async with known(f"postgresql://me:hunter2@127.0.0.1:{port}/x") as here:
                with pytest.raises(StorageError):
                    await here.registry.all_devices()

    asyncio.run(main())
    assert "refused" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.real
def test_a_restarted_server_is_used_again(server: Postgres) -> None:
    async def main() -> None:
        async with known(server.create()) as here:
            device = await here.registry.check_in(contact())
            await asyncio.to_thread(server.stop)
            try:
                with pytest.raises(StorageError):
                    await here.registry.all_devices()
            finally:
                await asyncio.to_thread(server.start)
            assert await here.registry.check_in(contact()) == device

    asyncio.run(main())
