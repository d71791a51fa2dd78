"""Announcements: on the device that asked, another of its room, or later. In virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from core.errors import StorageError
from core.ports import DeviceLocation
from devices.fleet.presence import DeviceNotification, Presence
from devices.notices.announcements import (
    MAX_WAITING_PER_TARGET,
    NOTIFY_TIMEOUT_S,
    SETTLE_S,
    WAIT_S,
    Announcements,
)
from pipeline.conversation.conversation import Conversations
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import Timers
from tests.devices.api.fakes import FakeLive, FakeRooms, FakeTalks, device
from tests.loop import run_virtual
from tests.pipeline.fakes import LoopClock

KITCHEN = DeviceLocation(area="kitchen", device_id="dev_1")


class Scene:
    """A conversation `conv` on dev_1 in the kitchen, where dev_2 is, too."""

    def __init__(self) -> None:
        self.talks = FakeTalks(places={"conv": KITCHEN})
        self.rooms = FakeRooms({"kitchen": ["dev_1", "dev_2"]})
        self.presence = Presence()
        self.said = Announcements(self.talks, self.rooms.as_directory(), self.presence, LoopClock())

    def here(self, **lives: FakeLive) -> ExitStack:
        stack = ExitStack()
        for name, live in lives.items():
            stack.enter_context(self.presence.connected(name, live))
        return stack

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.said.run())
            yield
            task.cancel()


def test_a_notice_for_a_forgotten_device_is_not_played_by_a_neighbour() -> None:
    """Also if it is being delivered at that moment."""

    async def main() -> None:
        scene, other = Scene(), FakeLive(hears=False)
        for text in ("one", "two"):
            await scene.said.announce("conv", text)
        async with scene.running():
            with scene.here(dev_1=FakeLive(is_stuck=True), dev_2=other):
                await asyncio.sleep(NOTIFY_TIMEOUT_S / 2)
                scene.said.forget("dev_1")
                other.hears = True
                await asyncio.sleep(5 * NOTIFY_TIMEOUT_S)
        assert other.heard in ([], ["one"])
        assert not scene.said.waiting_by_device()

    run_virtual(main())


def test_an_open_conversation_gets_its_notice_first() -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive()
        scene.talks.is_open = True
        with scene.here(dev_1=live):
            assert await scene.said.announce("conv", "ready")
        assert (scene.talks.heard, live.heard) == (["ready"], [])

    run_virtual(main())


@pytest.mark.parametrize(
    ("first", "second", "heard"),
    [
        (FakeLive(), FakeLive(), (1, 0)),
        (None, FakeLive(), (0, 1)),
        (FakeLive(hears=False), FakeLive(), (0, 1)),
        (FakeLive(hears=StorageError("x")), FakeLive(), (0, 1)),
    ],
)
def test_a_notice_falls_back_to_the_device_then_to_its_room(
    first: FakeLive | None, second: FakeLive, heard: tuple[int, int]
) -> None:
    async def main() -> None:
        scene = Scene()
        lives = {"dev_2": second} | ({"dev_1": first} if first else {})
        with scene.here(**lives):
            assert await scene.said.announce("conv", "ready")
        assert (len(first.heard) if first else 0, len(second.heard)) == heard
        assert scene.said.waiting_by_device() == {}

    run_virtual(main())


def test_a_notice_waits_for_an_absent_device() -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive()
        async with scene.running():
            assert await scene.said.announce("conv", "ready")
            assert scene.said.waiting_by_device() == {"dev_1": 1}
            await asyncio.sleep(WAIT_S / 2)
            with scene.here(dev_1=live):
                await asyncio.sleep(2 * SETTLE_S)
            assert (live.heard, scene.said.waiting_by_device()) == (["ready"], {})

    run_virtual(main())


def test_a_waiting_notice_is_played_by_another_device_of_the_room() -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive()
        async with scene.running():
            await scene.said.announce("conv", "ready")
            with scene.here(dev_2=live):
                await asyncio.sleep(2 * SETTLE_S)
            assert live.heard == ["ready"]

    run_virtual(main())


def test_a_busy_device_plays_a_notice_when_it_is_idle() -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive(hears=False)
        async with scene.running():
            with scene.here(dev_1=live):
                assert not await scene.said.to_device(device(), DeviceNotification(text="one"))
                assert not await scene.said.to_device(device(), DeviceNotification(text="two"))
                await asyncio.sleep(60)
                assert live.heard == []
                live.hears = True
                scene.presence.note_change()
                await asyncio.sleep(2 * SETTLE_S)
            assert live.heard == ["one", "two"]

    run_virtual(main())


def test_an_expired_notice_is_not_played() -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive()
        async with scene.running():
            await scene.said.announce("conv", "ready")
            changed = scene.said.changed()
            await asyncio.sleep(WAIT_S + 1)
            assert changed.is_set()
            assert scene.said.waiting_by_device() == {}
            with scene.here(dev_1=live):
                await asyncio.sleep(2 * SETTLE_S)
            assert live.heard == []

    run_virtual(main())


def test_a_notice_without_a_device_does_not_wait() -> None:
    """A timer goes on trying for a page that was just closed."""

    async def main() -> None:
        scene = Scene()
        scene.talks.places = {"room": DeviceLocation(area="kitchen")}
        assert not await scene.said.announce("unknown", "ready")
        assert not await scene.said.announce("room", "ready")
        live = FakeLive()
        with scene.here(dev_2=live):
            assert await scene.said.announce("room", "ready")
        assert live.heard == ["ready"]

    run_virtual(main())


def test_the_queue_of_notices_drops_the_oldest() -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive()
        for number in range(MAX_WAITING_PER_TARGET + 2):
            await scene.said.to_device(device(), DeviceNotification(text=str(number)))
        assert scene.said.waiting_by_device() == {"dev_1": MAX_WAITING_PER_TARGET}
        async with scene.running():
            with scene.here(dev_1=live):
                await asyncio.sleep(2 * SETTLE_S)
        assert live.heard == [str(number) for number in range(2, MAX_WAITING_PER_TARGET + 2)]

    run_virtual(main())


def test_a_notice_for_an_area_is_played_by_all_or_the_first_to_return() -> None:
    async def main() -> None:
        scene, one, two = Scene(), FakeLive(), FakeLive()
        async with scene.running():
            with scene.here(dev_1=one, dev_2=two):
                heard = await scene.said.to_area("kitchen", DeviceNotification(text="dinner"))
            assert (heard, one.heard, two.heard) == (["dev_1", "dev_2"], ["dinner"], ["dinner"])
            assert await scene.said.to_area("kitchen", DeviceNotification(text="again")) == []
            assert scene.said.waiting_in(" Kitchen") == 1
            with scene.here(dev_2=two):
                await asyncio.sleep(2 * SETTLE_S)
            assert (one.heard, two.heard) == (["dinner"], ["dinner", "again"])
            assert scene.said.waiting_in("kitchen") == 0

    run_virtual(main())


def test_a_stuck_device_delays_no_other() -> None:
    async def main() -> None:
        scene, stuck, other = Scene(), FakeLive(is_stuck=True), FakeLive()
        scene.rooms.ids = {}
        await scene.said.to_device(device("dev_1"), DeviceNotification(text="one"))
        await scene.said.to_device(device("dev_2"), DeviceNotification(text="two"))
        async with scene.running():
            with scene.here(dev_1=stuck, dev_2=other):
                await asyncio.sleep(1)
                assert other.heard == ["two"]
                await asyncio.sleep(NOTIFY_TIMEOUT_S)
                stuck.is_stuck = False
                scene.presence.note_change()
                await asyncio.sleep(NOTIFY_TIMEOUT_S + 2 * SETTLE_S)  # until the try before it ends
                assert stuck.heard == ["one"]

    run_virtual(main())


def test_a_failed_database_keeps_the_waiting_notices() -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive()
        scene.rooms.fails = StorageError("x")
        async with scene.running():
            with scene.here(dev_2=live):
                assert await scene.said.announce("conv", "ready")
                await asyncio.sleep(2 * SETTLE_S)
                assert scene.said.waiting_by_device() == {"dev_1": 1}
                scene.rooms.fails = None
                scene.presence.note_change()
                await asyncio.sleep(2 * SETTLE_S)
                assert live.heard == ["ready"]

    run_virtual(main())


def test_notices_for_a_forgotten_device_are_dropped() -> None:
    async def main() -> None:
        scene, live = Scene(), FakeLive()
        await scene.said.announce("conv", "ready")
        scene.said.forget("dev_1")
        async with scene.running():
            with scene.here(dev_1=live):
                await asyncio.sleep(2 * SETTLE_S)
        assert live.heard == []

    run_virtual(main())


def test_a_timer_of_a_disconnected_board_rings_nearby_or_later() -> None:
    async def main() -> None:
        scene, clock, talks = Scene(), LoopClock(), Conversations()
        said = Announcements(talks, scene.rooms.as_directory(), scene.presence, clock)
        timers = Timers(Home(default_home()), clock, said)
        board, other = FakeLive(), FakeLive()
        talks.get("conv").place = KITCHEN
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(said.run()), tasks.create_task(timers.run())]
            timers.start("conv", "en", 5, "tea")
            with scene.here(dev_2=other):
                await asyncio.sleep(6)
            assert other.heard == ["Your tea timer is done."]
            timers.start("conv", "en", 5, "egg")
            await asyncio.sleep(120)
            with scene.here(dev_1=board):
                await asyncio.sleep(2 * SETTLE_S)
            assert board.heard == ["Your egg timer is done."]
            assert timers.of("conv") == ()
            for task in work:
                task.cancel()

    run_virtual(main())
