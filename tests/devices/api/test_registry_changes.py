"""The watch of the registry disconnects only devices that may no longer be served."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import text

from core.errors import StorageError
from devices.api.door import DATABASE_RETRY_S, DevicesDoor
from devices.api.event_log import DeviceEventLog
from devices.fleet.directory import Device
from devices.fleet.presence import Presence
from devices.notices.announcements import Announcements
from devices.registry.registry import DeviceRegistry
from tests.devices.api.fakes import FakeLive, FakeRooms, FakeTalks, device
from tests.devices.api.scenes import scene
from tests.loop import run_virtual
from tests.pipeline.fakes import LoopClock

pytestmark = pytest.mark.live

OURS, OTHERS = b"1" * 32, b"2" * 32


class Kept:
    """The part of the registry that the watch uses."""

    def __init__(self, *known: Device) -> None:
        self.known = known
        self.fails = self.looks = 0
        self.changes = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def all_devices(self) -> Sequence[Device]:
        self.looks += 1
        if self.looks <= self.fails:
            raise StorageError("the device database does not answer")
        found = self.known
        await self.answers.wait()
        return found

    def changed(self) -> asyncio.Event:
        return self.changes


def door_of(kept: Kept, presence: Presence) -> DevicesDoor:
    clock = LoopClock()
    said = Announcements(FakeTalks(), FakeRooms().as_directory(), presence, clock)
    registry = cast("DeviceRegistry", kept)
    return DevicesDoor(
        registry, presence, DeviceEventLog(clock), said, lambda profile: None, lambda notice: None
    )


def test_a_failed_check_is_repeated_without_a_change() -> None:
    async def main() -> None:
        kept, presence, live = Kept(replace(device(), standing="blocked")), Presence(), FakeLive()
        kept.fails = 2
        running = asyncio.create_task(door_of(kept, presence).run())
        with presence.connected("dev_1", live):
            await asyncio.sleep(2 * DATABASE_RETRY_S - 0.1)
            assert (kept.looks, live.told) == (2, [])
            await asyncio.sleep(0.2)
            assert (kept.looks, live.told) == (3, ["close"])
            await asyncio.sleep(10 * DATABASE_RETRY_S)
            assert kept.looks == 3
        running.cancel()

    run_virtual(main())


@pytest.mark.parametrize("who", [replace(device(), identity=OTHERS), None])
def test_a_device_that_connects_during_a_check_is_kept(
    who: Device | None,
) -> None:
    async def main() -> None:
        kept, presence = Kept(*([who] if who else [])), Presence()
        kept.answers.clear()
        former, newer = FakeLive(), FakeLive()
        with presence.connected("dev_1", former, OURS):
            running = asyncio.create_task(door_of(kept, presence).run())
            await asyncio.sleep(1)
            with presence.connected("dev_1", newer, OTHERS):
                kept.answers.set()
                await asyncio.sleep(1)
                assert (kept.looks, newer.told) == (1, [])
        running.cancel()

    run_virtual(main())


def test_a_profile_of_a_newer_version_disconnects_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """During an update, servers of two versions share a database."""
    kept = '{"echo": "newer-words", "volume": 3}'

    async def main() -> None:
        async with scene(tmp_path) as here, asyncio.TaskGroup() as tasks:
            board, live = await here.new("aa:01", "127.0.0.1"), FakeLive(hears=False)
            await here.registry.edit(board.id, area="kitchen")
            work = (here.door.run(), here.announcements.run())
            running = [tasks.create_task(one) for one in work]
            await here.registry._database.run(
                lambda one: one.execute(text("UPDATE devices SET profile = :kept"), {"kept": kept})
            )
            with here.presence.connected(board.id, live):
                await here.ask("POST", "areas/kitchen/notify", {"text": "dinner"})
                live.hears = True
                here.presence.note_change()
                while not live.heard:
                    await here.registry.all_devices()
                changed = here.registry.changed()
                await here.registry.edit(board.id, name="Küche")
                assert changed.is_set()
                for _ in range(3):
                    await here.registry.all_devices()
            assert [one.done() for one in running] == [False, False]
            _, told = await here.ask("GET", f"devices/{board.id}")
            assert (told["profile"]["echo"], told["profile"]["volume"]) == ("", 3)
            for one in running:
                one.cancel()

    asyncio.run(main())
    assert caplog.text.count("its stored echo is not supported") == 1
    assert "newer-words" not in caplog.text
