"""Questions of programs on a simulated satellite: it listens by itself after it has played one."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bench.client.satellite import PLAYER, RAW, START, Satellite
from devices.fleet.presence import AskableDevice
from tests.devices.esphome.servers import ONE, WHOLE_TURN, Scene, against

pytestmark = pytest.mark.live

QUESTION = "Pizza, or pasta?"


def askable(scene: Scene) -> AskableDevice:
    live: object = scene.presence.find("dev_1")
    assert isinstance(live, AskableDevice)
    return live


async def answered(satellite: Satellite, word: int) -> None:
    """Waits until the satellite listens, and says a word."""
    await satellite.until(lambda: "STT_START" in satellite.names())
    await satellite.say((0, 200), (word, 300), (0, 3000))
    await satellite.until(lambda: "RUN_END" in satellite.names())


def test_the_words_answer_the_question_and_the_assistant_is_silent() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        device = askable(scene)
        assert device.can_be_asked
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(device.ask(QUESTION))
            await answered(satellite, ONE)
        assert asked.result() == "one"
        assert [said.text for said in satellite.announcements] == [QUESTION]
        assert satellite.data("STT_END") == {"text": "one"}
        assert not satellite.names() & {"TTS_START", "TTS_END", "ERROR"}
        assert scene.llm.asked == []
        await scene.idle()
        assert await satellite.turn(ONE) == WHOLE_TURN
        words = [one.text for one in scene.llm.asked[-1] if one.role == "user"]
        assert words == ["one", "one"]  # they stay in the history
        assert scene.errors == []

    against(act)


def test_who_did_not_speak_in_time_may_press_the_button() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(askable(scene).ask(QUESTION))
            await satellite.until(lambda: "STT_START" in satellite.names())
            await satellite.say((0, 12_000))
            await satellite.until(lambda: "RUN_END" in satellite.names())
            await scene.idle()
            satellite.start(phrase="")
            await answered(satellite, ONE)
        assert asked.result() == "one"
        assert scene.llm.asked == []

    against(act)


def test_the_wake_word_is_for_the_assistant() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(askable(scene).ask(QUESTION))
            await satellite.until(lambda: satellite.announcements)
            assert await satellite.turn(ONE) == WHOLE_TURN
        assert asked.result() is None

    against(act, Scene(Satellite(listens_when_asked=False)))


def test_a_question_that_is_given_up_lets_the_assistant_answer_again() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await askable(scene).ask(QUESTION)
        satellite.start(phrase="")
        await satellite.until(satellite.names)
        await satellite.say((0, 200), (ONE, 300), (0, 3000))
        await satellite.until(lambda: "RUN_END" in satellite.names())
        assert satellite.data("TTS_END")["url"]

    against(act, Scene(Satellite(listens_when_asked=False)))


async def _while_busy(scene: Scene, satellite: Satellite) -> None:
    satellite.start()
    await satellite.until(satellite.names)
    assert await askable(scene).ask(QUESTION) is None
    satellite.stop()
    await scene.idle()


async def _while_another_waits(scene: Scene, satellite: Satellite) -> None:
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(askable(scene).ask(QUESTION))
        await satellite.until(lambda: satellite.announcements)
        assert await askable(scene).ask(QUESTION) is None
        await answered(satellite, ONE)
    assert first.result() == "one"


async def _until_it_is_gone(scene: Scene, satellite: Satellite) -> None:
    device = askable(scene)
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(device.ask(QUESTION))
        await satellite.until(lambda: satellite.announcements)
        satellite.connections[0].cut()
    assert asked.result() is None
    await satellite.until(lambda: not satellite.subscriber)
    await satellite.subscribed()


@pytest.mark.parametrize("act", [_while_busy, _while_another_waits, _until_it_is_gone])
def test_it_cannot_be_asked(act: Callable[[Scene, Satellite], Awaitable[None]]) -> None:
    async def begin(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await act(scene, satellite)

    against(begin)


@pytest.mark.parametrize("features", [RAW, PLAYER & ~START])
def test_a_raw_speaker_and_old_firmware_do_not_listen_by_themselves(features: int) -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        device = askable(scene)
        assert not device.can_be_asked
        assert await device.ask(QUESTION) is None
        assert satellite.announcements == []

    against(act, Scene(Satellite(features=features)))
