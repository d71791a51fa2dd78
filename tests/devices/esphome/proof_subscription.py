"""The door reads the abilities of a satellite and sets its wake word and volume."""

import asyncio

import pytest

from bench.client.satellite import RAW, Satellite, api
from devices.fleet.directory import DeviceProfile
from tests.devices.esphome.servers import ONE, WHOLE_TURN, Scene, against

pytestmark = pytest.mark.live


def asked(satellite: Satellite) -> int:
    """Returns how often the device was asked for its wake words."""
    return sum(isinstance(one, api.VoiceAssistantConfigurationRequest) for one in satellite.seen)


def test_the_directory_knows_it() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        (claims,) = scene.directory.claims
        assert (claims.kind, claims.hardware_id) == ("esphome", "aa:bb:cc:dd:ee:ff")
        assert (claims.address, claims.name) == ("127.0.0.1", "Kitchen Satellite")
        assert (claims.board, claims.firmware) == ("Home Assistant Voice PE", "26.6.0")

    against(act)


def test_volume_and_wake_word_of_the_profile_are_set() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.until(lambda: len(satellite.commands) == 2)
        volume, wake_words = satellite.commands
        assert volume.volume == pytest.approx(0.4)
        assert list(wake_words.active_wake_words) == ["hey_jarvis"]

    scene = Scene(Satellite(wake_words=("okay_nabu", "hey_jarvis")))
    scene.directory.profile = DeviceProfile(volume=40, wake_word="Hey Jarvis")
    against(act, scene)


def test_another_client_holds_it() -> None:
    """That is said, and the device is taken over when the other one lets it go."""

    async def act(scene: Scene, satellite: Satellite) -> None:
        await scene.until(lambda: scene.errors == ["held_by_another_client"])
        assert satellite.subscriber is None
        satellite.is_held = False
        await satellite.subscribed()
        assert await satellite.turn(ONE) == WHOLE_TURN

    against(act, Scene(Satellite(is_held=True)))


def test_firmware_that_crashes_when_asked_is_asked_once() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.until(lambda: asked(satellite))
        satellite.connections[0].cut()
        satellite.is_held = False
        await satellite.subscribed()
        await asyncio.sleep(120)
        assert asked(satellite) == 1

    against(act, Scene(Satellite(is_held=True, firmware="2025.12.1")))


def test_a_raw_speaker_is_not_asked() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await asyncio.sleep(120)
        assert asked(satellite) == 0

    against(act, Scene(Satellite(features=RAW)))
