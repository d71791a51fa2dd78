"""Announcements on a simulated satellite."""

import pytest

from bench.client.satellite import RAW, Satellite
from devices.fleet.presence import DeviceNotification
from tests.devices.esphome.servers import ONE, WHOLE_TURN, Scene, against, decoded

pytestmark = pytest.mark.live

DINNER = DeviceNotification(text="Dinner is ready.")


async def notify(scene: Scene, notice: DeviceNotification = DINNER) -> bool:
    live = scene.presence.find("dev_1")
    assert live is not None
    return await live.notify(notice)


def test_a_chime_and_a_text() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        assert await notify(scene)
        assert not await notify(scene)  # one at a time: the other one waits
        await satellite.until(lambda: len(satellite.fetched) == 2)
        (said,) = satellite.announcements
        assert (said.text, said.start_conversation) == (DINNER.text, False)
        chime, speech = (decoded(data) for _, data in satellite.fetched)
        assert len(chime) == 2 * 48_000 * 180 // 1000
        assert len(speech) >= 48_000 * 0.29
        await scene.idle()
        assert await satellite.turn(ONE) == WHOLE_TURN

    against(act)


def test_a_question_that_the_device_listens_to() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        question = DeviceNotification(text="Shall I close the door?", starts_conversation=True)
        assert await notify(scene, question)
        await satellite.until(lambda: satellite.announcements)
        assert satellite.announcements[0].start_conversation
        await scene.idle()

    against(act)


def test_a_url_is_not_passed_on() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        assert not await notify(scene, DeviceNotification(text="", audio_url="http://x/a.wav"))
        assert satellite.announcements == []

    against(act)


def test_it_waits_while_the_user_speaks() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        assert not await notify(scene)
        satellite.stop()
        await scene.idle()
        assert await notify(scene)
        await scene.idle()

    against(act)


def test_a_voice_that_fails_and_a_device_that_cannot() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        scene.tts.fails = True
        assert not await notify(scene)
        assert len(scene.errors) == 1
        assert satellite.announcements == []

    async def act_raw(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        assert not await notify(scene)

    against(act)
    against(act_raw, Scene(Satellite(features=RAW)))


def test_words_that_come_while_an_answer_is_played_are_announced_afterwards() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await satellite.turn(ONE)
        assert await scene.conversations.announce("dev_1", "Your timer is done.")
        await satellite.until(lambda: satellite.announcements)
        assert satellite.announcements[0].text == "Your timer is done."
        await scene.idle()

    against(act, Scene(Satellite(plays_s=3.0)))
