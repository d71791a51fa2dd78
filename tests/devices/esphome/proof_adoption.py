"""Satellites that the configuration does not name are adopted, plain and with keys."""

import base64
import logging
from dataclasses import replace

import pytest

from bench.client.satellite import Satellite
from core.errors import Conflict
from tests.devices.esphome.servers import ONE, WHOLE_TURN, Scene, against

pytestmark = pytest.mark.live

KEY = base64.b64encode(bytes(range(32))).decode()


def unnamed(satellite: Satellite) -> Scene:
    return Scene(satellite, is_unnamed=True)


def test_a_satellite_without_encryption_is_adopted_and_talks() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await scene.adoption.adopt(scene.announce(), "")
        await satellite.subscribed()
        assert await satellite.turn(ONE) == WHOLE_TURN
        assert satellite.keys_over == []

    against(act, unnamed(Satellite()))


@pytest.mark.parametrize("has_zero_key", [True, False])
def test_a_new_satellite_is_given_a_key_which_it_loses_when_it_is_forgotten(
    has_zero_key: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, "aioesphomeapi")  # as the server's log does

    async def act(scene: Scene, satellite: Satellite) -> None:
        await scene.adoption.adopt(scene.announce(), "")
        await satellite.subscribed()
        key = satellite.key
        assert len(base64.b64decode(key)) == 32
        assert await satellite.turn(ONE) == WHOLE_TURN
        scene.settings_store.value = None
        scene.directory.forget()
        await satellite.until(lambda: not satellite.connections)
        over = "noise" if has_zero_key else "plain"
        assert (satellite.key, satellite.keys_over) == ("", [over, "noise"])
        assert key not in caplog.text

    against(act, unnamed(Satellite(can_encrypt=True, has_zero_key=has_zero_key)))


def test_a_satellite_that_takes_no_key_is_adopted_without() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await scene.adoption.adopt(scene.announce(), "")
        await satellite.subscribed()
        assert satellite.key == ""

    against(act, unnamed(Satellite(can_encrypt=True, refuses_key=True)))


def test_the_key_of_home_assistant_is_used_and_stays() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        found = scene.announce()
        assert found.needs_key
        await scene.adoption.adopt(found, KEY)
        await satellite.subscribed()
        scene.settings_store.value = None
        scene.directory.forget()
        await satellite.until(lambda: not satellite.connections)
        assert (satellite.key, satellite.keys_over) == (KEY, [])

    against(act, unnamed(Satellite(key=KEY)))


@pytest.mark.parametrize(
    ("satellite", "key", "code"),
    [
        (Satellite(key=KEY), "", "key_needed"),
        (Satellite(key=KEY), base64.b64encode(bytes(32)[::-1][:31] + b"\1").decode(), "wrong_key"),
        (Satellite(refuses_encryption=True), KEY, "not_encrypted"),
        (Satellite(features=0), "", "no_voice"),
    ],
)
def test_an_adoption_that_fails_says_why_and_keeps_nothing(
    satellite: Satellite, key: str, code: str
) -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        with pytest.raises(Conflict) as refused:
            await scene.adoption.adopt(scene.announce(), key)
        assert refused.value.code == code
        assert key == "" or key not in str(refused.value)
        assert scene.settings_store.value is None

    against(act, unnamed(replace(satellite)))


def test_an_adopted_satellite_is_followed_to_its_new_address() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        found = scene.announce()
        await scene.adoption.adopt(found, "")
        await satellite.subscribed()
        satellite.connections[0].cut()
        moved = Satellite()
        async with moved.listening():
            scene.satellite = moved
            scene.announce()
            await moved.subscribed()
            scene.directory.forget()
            await moved.until(lambda: not moved.connections)

    against(act, unnamed(Satellite()))
