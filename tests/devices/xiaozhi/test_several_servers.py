"""Two servers of one PostgreSQL: a change at one takes effect at the other at once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from devices.api.door import DevicesDoor
from devices.api.event_log import DeviceEventLog
from devices.fleet.directory import DeviceClaims
from devices.fleet.pairing import RegistrySettings
from devices.fleet.presence import DeviceNotification
from devices.notices.announcements import Announcements
from devices.registry.database import open_database
from devices.registry.registry import DeviceRegistry
from tests.devices.api.fakes import FakeTalks
from tests.devices.registry.harness import Moment
from tests.devices.registry.postgres import Postgres, postgres
from tests.devices.xiaozhi.servers import Scene, Server, running

pytestmark = pytest.mark.real


@dataclass
class One:
    """One of several servers."""

    server: Server
    registry: DeviceRegistry
    announcements: Announcements


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgres() as running_one:
        yield running_one


@asynccontextmanager
async def a_server(url: str) -> AsyncIterator[One]:
    clock = Moment()
    async with open_database(url) as kept, asyncio.TaskGroup() as tasks:
        registry = DeviceRegistry(kept, clock, RegistrySettings())
        async with running(Scene(directory=registry)) as server:
            presence = server.scene.presence
            waiting = Announcements(FakeTalks(), registry, presence, clock)
            door = DevicesDoor(
                registry, presence, DeviceEventLog(clock), waiting, lambda _: None, lambda _: None
            )
            connected = registry.changed()
            work = [tasks.create_task(one()) for one in (registry.run, door.run)]
            await connected.wait()
            yield One(server, registry, waiting)
            for task in work:
                task.cancel()


@pytest.mark.parametrize("end", ["block", "forget", "replace"])
def test_another_server_can_end_a_conversation(database: Postgres, end: str) -> None:
    async def main() -> None:
        url = database.create()
        async with asyncio.timeout(60), a_server(url) as here, a_server(url) as there:
            board = await here.server.ready()
            stays = await here.server.ready(mac="a1:b2:c3:d4:e5:00")
            assert await board.turn("one") == ("one", ["you said one."])
            device = await there.registry.find("xiaozhi", board.mac)
            assert device is not None
            match end:
                case "block":
                    await there.registry.block(device.id)
                case "forget":
                    await there.registry.forget(device.id)
                case _:
                    other = DeviceClaims(
                        kind="xiaozhi",
                        hardware_id=board.mac,
                        address="192.168.1.9",
                        identity=b"2" * 32,
                    )
                    claim = await there.registry.check_in(other)
                    await here.registry.approve(claim.id, claim.pairing_code)
            await board.closed.wait()
            assert board.close_code == 1008
            assert await stays.turn("two") == ("two", ["you said two."])
            for one in (board, stays):
                await one.hang_up()

    asyncio.run(main())


def test_waiting_notices_are_dropped_with_their_device(database: Postgres) -> None:
    async def main() -> None:
        url = database.create()
        async with asyncio.timeout(60), a_server(url) as here, a_server(url) as there:
            await here.server.board().boot()
            (device,) = await there.registry.all_devices()
            await here.announcements.to_device(device, DeviceNotification(text="dinner"))
            changed = here.announcements.changed()
            await there.registry.forget(device.id)
            await changed.wait()
            assert here.announcements.waiting_by_device() == {}

    asyncio.run(main())
