"""Gateways that share an SQLite database learn each other's changes."""

import asyncio
from pathlib import Path

import pytest

from devices.registry import notifications
from devices.registry.database import open_database, sqlite_url
from devices.registry.named_keys import NamedKeys
from devices.registry.notifications import DeviceChangeChannel
from server.runtime.clock import SystemClock

pytestmark = pytest.mark.live


def test_a_key_that_another_gateway_revoked_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "SQLITE_INTERVAL_S", 0.01)

    async def main() -> None:
        url = sqlite_url(tmp_path / "devices.db")
        async with (
            asyncio.timeout(20),
            open_database(url, is_shared=True) as here,
            open_database(url, is_shared=True) as other,
            asyncio.TaskGroup() as tasks,
        ):
            changed = asyncio.Event()
            channel = DeviceChangeChannel(here)
            following = tasks.create_task(channel.receive(changed.set))
            keys_here, keys_other = (NamedKeys(one, SystemClock()) for one in (here, other))
            _, token = await keys_other.add("radio", ["talk"])
            await keys_here.load()
            assert keys_here.find(token) is not None
            await changed.wait()
            changed.clear()
            await keys_other.revoke("radio")
            await changed.wait()
            await keys_here.load()
            assert keys_here.find(token) is None
            following.cancel()

    asyncio.run(main())


def test_a_database_of_one_process_is_not_watched(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_database(sqlite_url(tmp_path / "devices.db")) as database:
            await DeviceChangeChannel(database).receive(lambda: None)

    asyncio.run(asyncio.wait_for(main(), 20))
