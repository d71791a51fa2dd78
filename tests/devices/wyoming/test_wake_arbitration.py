"""Satellites of Home Assistant in one room, whose wake words the server detects: one of them gets
the detection. In real time, because wake words are found in threads."""

import asyncio

import pytest
from wyoming.ping import Ping
from wyoming.wake import Detect

from core.ports import Clock
from devices.fleet.wake_arbiter import WakeArbiter
from tests.devices.wake_room import LOUD, QUIET, ROOM, WORD, stream_scene
from tests.devices.wyoming.servers import client, send, sound, until
from tests.pipeline.fakes import LoopClock

pytestmark = pytest.mark.live


class OtherDevice:
    """A device of another kind in the same room."""

    contender_id, contender_area, connects_when_woken = "dev_9", ROOM, False

    def listens_for(self, wake_word: str) -> bool:
        return True


async def _hear(port: int, level: int, is_waiting: asyncio.Barrier | None = None) -> list[str]:
    async with client(port) as one:
        start, *chunks = sound((0, 100), (level, 300))
        await send(one, Detect(), start, Ping())
        await until(one, "pong")  # it listens
        if is_waiting is not None:
            await is_waiting.wait()
        await send(one, *chunks, Ping())
        return [event.type for event in await until(one, "pong")]


def _arbiter() -> WakeArbiter:
    clock: Clock = LoopClock()
    return WakeArbiter(clock)


def test_of_two_microphones_the_louder_one_gets_the_detection() -> None:
    async def main() -> None:
        scene = stream_scene(_arbiter())
        async with scene.serving() as port:
            both = asyncio.Barrier(2)
            loud, quiet = await asyncio.gather(_hear(port, LOUD, both), _hear(port, QUIET, both))
        assert loud == ["detection", "pong"]
        assert quiet == ["not-detected", "pong"]

    asyncio.run(main())


def test_a_microphone_beside_a_device_that_answers_gets_no_detection() -> None:
    async def main() -> None:
        arbiter, other = _arbiter(), OtherDevice()
        scene = stream_scene(arbiter)
        async with scene.serving() as port:
            with arbiter.connected(other):
                assert await arbiter.report(other, WORD).is_won()
                assert await _hear(port, LOUD) == ["not-detected", "pong"]

    asyncio.run(main())


def test_a_client_that_leaves_with_its_detection_has_not_given_up() -> None:
    """Home Assistant hangs up as soon as it has a detection."""

    async def main() -> None:
        arbiter, other = _arbiter(), OtherDevice()
        scene = stream_scene(arbiter)
        async with scene.serving() as port:
            assert await _hear(port, LOUD) == ["detection", "pong"]
            await scene.left()
            with arbiter.connected(other):
                assert not await arbiter.report(other, WORD).is_won()
        assert not arbiter._latest
        assert not arbiter._arbitration._levels

    asyncio.run(main())
