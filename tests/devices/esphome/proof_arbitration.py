"""Simulated devices of all four kinds in one room hear a wake word: exactly one answers, and the
others stop in their own protocol without a sound or an error. In real time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bench.client.satellite import Satellite
from tests.devices.esphome.servers import ONE, WHOLE_TURN, Scene, against, running
from tests.devices.wake_room import LOUD, QUIET, WORD, WakeRoom, new_arbiter, wake_room
from tests.loop import LoopbackClockLoop, run_virtual

pytestmark = pytest.mark.live

BETWEEN_S = 1.6
"Then the next wake word is another one."


async def wake(satellite: Satellite, level: int) -> bool:
    """Says the wake word to the satellite; returns whether it answers. The first sound after the
    wake word is that of the room."""
    satellite.start(WORD)
    await satellite.say((level // 100, 400))
    await satellite.until(satellite.names)
    if satellite.names() == {"RUN_END"}:
        assert satellite.data("RUN_END") == {}
        return False
    assert satellite.names() == {"RUN_START", "STT_START"}
    satellite.stop()
    await satellite.until(lambda: "RUN_END" in satellite.names())
    return True


@asynccontextmanager
async def all_kinds() -> AsyncIterator[tuple[WakeRoom, Scene]]:
    arbiter = new_arbiter()
    scene = Scene(Satellite(wake_words=("alexa",)), wake_arbiter=arbiter)
    async with asyncio.timeout(60), wake_room(arbiter, is_real=True) as room, running(scene):
        await scene.satellite.subscribed()
        yield room, scene


async def rounds(room: WakeRoom, satellite: Satellite) -> list[int]:
    """Returns the device that answered, for each time that one of the four was the loudest."""
    answers: list[int] = []
    for loudest in (0, 1, 2, 3, 0, 1, 2, 3):
        levels = [LOUD if at == loudest else QUIET for at in range(4)]
        won = await asyncio.gather(
            room.wake_box(levels[0]),
            room.wake_board(levels[1]),
            room.wake_stream(levels[2]),
            wake(satellite, levels[3]),
        )
        assert sum(won) == 1, won
        answers.append(won.index(True))
        await asyncio.sleep(BETWEEN_S)
    return answers


def test_of_four_kinds_the_loudest_answers() -> None:
    async def main() -> None:
        async with all_kinds() as (room, scene):
            answers = await rounds(room, scene.satellite)
            # At first nothing is known about how loud each of them usually hears.
            assert answers[1:] == [1, 2, 3, 0, 1, 2, 3]

    asyncio.run(main())


def test_two_satellites_of_one_room() -> None:
    """One of two satellites answers; the other one has no session."""

    async def main() -> None:
        arbiter = new_arbiter()
        near = Scene(Satellite(), wake_arbiter=arbiter)
        far = Scene(Satellite(), wake_arbiter=arbiter)
        far.directory.device_id = "dev_2"
        async with asyncio.timeout(60), running(near), running(far):
            for scene in (near, far):
                await scene.satellite.subscribed()
                scene.satellite.start(WORD)
            saying = far.satellite.say((10, 400))
            _, events = await asyncio.gather(saying, _turn(near.satellite))
            assert events == WHOLE_TURN
            assert (far.satellite.events, far.llm.asked) == ([("RUN_END", {})], [])
            assert far.metrics.counts["earshot_esphome_runs:lost"] == 1

    run_virtual(main(), LoopbackClockLoop)


async def _turn(satellite: Satellite) -> list[str]:
    await satellite.say((100, 300), (ONE, 300), (0, 3000))
    await satellite.until(lambda: "RUN_END" in satellite.names())
    return [name for name, _ in satellite.events]


def _alone(act: Callable[[Scene, Satellite, WakeRoom], Awaitable[None]]) -> None:
    async def main() -> None:
        arbiter = new_arbiter()
        scene = Scene(wake_arbiter=arbiter)
        async with asyncio.timeout(60), wake_room(arbiter) as room, running(scene):
            await scene.satellite.subscribed()
            await act(scene, scene.satellite, room)

    run_virtual(main(), LoopbackClockLoop)


def test_a_satellite_in_another_room_answers_too() -> None:
    async def act(scene: Scene, satellite: Satellite, room: WakeRoom) -> None:
        scene.directory.change(area="Attic")
        await asyncio.sleep(0.1)
        assert scene.wake_arbiter._contenders["dev_1"].contender_area == "Attic"
        assert all(await asyncio.gather(wake(satellite, QUIET), room.wake_box(LOUD)))

    _alone(act)


def test_a_continued_conversation_and_a_button_are_not_arbitrated() -> None:
    async def act(scene: Scene, satellite: Satellite, room: WakeRoom) -> None:
        assert await room.wake_box(LOUD) is True
        satellite.start(phrase="")
        await satellite.until(satellite.names)
        assert satellite.names() == {"RUN_START", "STT_START"}
        satellite.stop()

    _alone(act)


def test_what_is_said_during_the_decision_is_heard() -> None:
    """The words follow the wake word at once, before it is decided who answers."""

    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start(WORD)
        await satellite.say((ONE, 300), (0, 3000))
        await satellite.until(lambda: "RUN_END" in satellite.names())
        assert satellite.data("STT_END") == {"text": "one"}

    against(act)
