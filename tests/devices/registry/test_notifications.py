"""Servers that share a PostgreSQL learn each other's changes at once."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from core.errors import NotFound
from devices.registry import notifications as news_file
from devices.registry.notifications import CHANNEL, DeviceChangeChannel
from tests.devices.registry.harness import Known, contact, known
from tests.devices.registry.postgres import Postgres

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("postgres")]

LIMIT_S = 20


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Known]:
    """Runs a server that listens to the others."""
    async with known(url) as here, asyncio.TaskGroup() as tasks:
        first = here.registry.changed()
        task = tasks.create_task(here.registry.run())
        await first.wait()  # it is connected, and may have missed something
        yield here
        task.cancel()


def end_listening(url: str) -> int:
    """Ends all listening connections, as a restart does; returns their number."""
    ended = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND query = %s"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(ended, (f"LISTEN {CHANNEL}",)).fetchone()
    return int(row[0]) if row else 0


@pytest.mark.real
def test_other_servers_are_notified_of_every_change(server: Postgres) -> None:
    async def main() -> None:
        url = server.create()
        async with asyncio.timeout(LIMIT_S), listening(url) as here, known(url) as other:
            registry, device = other.registry, await other.registry.check_in(contact())
            changes: dict[str, Any] = {
                "new": lambda: registry.check_in(contact("aa:02")),
                "approved": lambda: registry.approve(device.id, device.pairing_code),
                "blocked": lambda: registry.block(device.id),
                "named": lambda: registry.edit(device.id, name="x"),
                "forgotten": lambda: registry.forget(device.id),
            }
            for change in changes.values():
                changed = here.registry.changed()
                await change()
                await changed.wait()

    asyncio.run(main())


@pytest.mark.real
def test_irrelevant_changes_send_no_notification(server: Postgres) -> None:
    """Neither own changes, nor failed ones, nor a repeated check-in."""

    async def main() -> None:
        url = server.create()
        async with asyncio.timeout(LIMIT_S), listening(url) as here, known(url) as other:
            device = await here.registry.check_in(contact())
            changed = here.registry.changed()
            with pytest.raises(NotFound):
                await other.registry.block("dev_0")
            await other.registry.check_in(contact())
            await here.registry.edit(device.id, name="here")
            own = here.registry.changed()
            assert own is not changed
            await other.registry.edit(device.id, name="there")
            await own.wait()  # the first that came since
            assert (await here.registry.by_id(device.id)).name == "there"

    asyncio.run(main())


@pytest.mark.real
def test_a_lost_connection_is_reopened_and_nothing_missed(
    server: Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(news_file, "WAITS_S", (0.05,))
    caplog.set_level(logging.INFO, news_file.__name__)

    async def main() -> None:
        url = server.create()
        async with asyncio.timeout(LIMIT_S), listening(url) as here, known(url) as other:
            changed = here.registry.changed()
            device = await other.registry.check_in(contact())
            await changed.wait()
            for _ in range(2):
                changed = here.registry.changed()
                assert await asyncio.to_thread(end_listening, url) == 1
                await changed.wait()  # though nobody changed anything
            changed = here.registry.changed()
            await other.registry.block(device.id)
            await changed.wait()

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records]
    assert [("not received" in one) for one in said] == [False, True, False, True, False]
    assert server.password not in caplog.text


@pytest.mark.real
def test_an_unreachable_database_is_retried_and_logged_once(
    server: Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(news_file, "WAITS_S", (0.01,))
    caplog.set_level(logging.INFO, news_file.__name__)
    tries, has_tried = 0, asyncio.Event()
    connect = psycopg.AsyncConnection.connect

    async def counted(*listed: Any, **named: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 4:
            has_tried.set()
        return await connect(*listed, **named)

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", counted)

    async def main() -> None:
        async with asyncio.timeout(2 * LIMIT_S), listening(server.create()) as here:
            changed = here.registry.changed()
            await asyncio.to_thread(server.stop)
            try:
                await has_tried.wait()
            finally:
                await asyncio.to_thread(server.start)
            await changed.wait()

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records]
    assert [("not received" in one) for one in said] == [False, True, False]


def test_sqlite_has_no_notifications(tmp_path: Any) -> None:
    async def main() -> None:
        async with known(f"sqlite:///{tmp_path}/devices.db") as here:
            changed = here.registry.changed()
            await here.registry.run()
            assert not changed.is_set()

    asyncio.run(main())


def test_an_unsupported_driver_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Other:
        driver = "postgresql+pg8000"

    asyncio.run(DeviceChangeChannel(Other()).receive(lambda: None))  # type: ignore[arg-type]
    assert "not received over postgresql+pg8000" in caplog.text
