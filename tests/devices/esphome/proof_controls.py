"""Settings of a simulated satellite are shown, followed and changed from the server."""

import pytest

from bench.client.satellite import (
    MUTE_KEY,
    PLAYER_KEY,
    RAW,
    SENSITIVITIES,
    SENSITIVITY_KEY,
    SOUND_KEY,
    Satellite,
)
from core.errors import Conflict, EarshotError, RequestError
from devices.fleet.presence import (
    AdjustableDevice,
    ControlChanges,
    ControllableDevice,
    DeviceSelect,
    DeviceSwitch,
    DeviceWakeWord,
    StoppableDevice,
)
from tests.devices.esphome.servers import ONE, Scene, against

pytestmark = pytest.mark.live

TWO_WORDS = ("okay_nabu", "hey_jarvis", "hey_mycroft")


def live_of(scene: Scene) -> ControllableDevice:
    live: object = scene.presence.find("dev_1")
    assert isinstance(live, ControllableDevice)
    return live


async def ready(scene: Scene) -> ControllableDevice:
    """Waits until the satellite has said everything."""
    await scene.until(lambda: scene.presence.ids() and live_of(scene).controls.wake_words)
    return live_of(scene)


def test_its_settings_are_shown_and_followed() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        live = await ready(scene)
        shown = live.controls
        assert (shown.volume, shown.is_muted, shown.is_microphone_off) == (50, False, False)
        assert shown.wake_words[0] == DeviceWakeWord(
            id="okay_nabu", words="Okay Nabu", is_active=True
        )
        assert [one.is_active for one in shown.wake_words] == [True, False, False]
        assert shown.max_wake_words == 2
        assert shown.switches == (DeviceSwitch(id="wake_sound", name="Wake sound", is_on=True),)
        (select,) = shown.selects
        assert select == DeviceSelect(
            id="wake_word_sensitivity",
            name="Wake word sensitivity",
            options=SENSITIVITIES,
            choice=SENSITIVITIES[0],
        )
        satellite.volume, satellite.on[MUTE_KEY] = 0.7, True  # its own buttons
        satellite.connections[0].send_states()
        await scene.until(lambda: live.controls.volume == 70)
        assert live.controls.is_microphone_off

    against(act, Scene(Satellite(wake_words=TWO_WORDS, max_wake_words=2)))


def test_all_settings_are_changed() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        live = await ready(scene)
        await live.control(
            ControlChanges(
                volume=30,
                is_muted=True,
                is_microphone_off=True,
                wake_words=("hey_jarvis", "hey_mycroft"),
                switches={"wake_sound": False},
                selects={"wake_word_sensitivity": SENSITIVITIES[2]},
            )
        )
        await scene.until(lambda: live.controls.selects[0].choice == SENSITIVITIES[2])
        shown = live.controls
        assert (shown.volume, shown.is_muted, shown.is_microphone_off) == (30, True, True)
        assert [one.is_active for one in shown.wake_words] == [False, True, True]
        assert not shown.switches[0].is_on
        assert satellite.volume == pytest.approx(0.3)
        assert satellite.active_wake_words == ["hey_jarvis", "hey_mycroft"]
        assert {one.key for one in satellite.commands if hasattr(one, "key")} == {
            PLAYER_KEY,
            MUTE_KEY,
            SOUND_KEY,
            SENSITIVITY_KEY,
        }

    against(act, Scene(Satellite(wake_words=TWO_WORDS, max_wake_words=2)))


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        (ControlChanges(wake_words=("alexa",)), RequestError, "allowed: okay_nabu, hey_jarvis"),
        (ControlChanges(wake_words=("okay_nabu", "hey_jarvis")), RequestError, "1 to 1 can be"),
        (ControlChanges(wake_words=()), RequestError, "1 to 1 can be"),
        (ControlChanges(switches={"led": True}), RequestError, "allowed: wake_sound"),
        (
            ControlChanges(volume=10, selects={"wake_word_sensitivity": "much"}),
            RequestError,
            "allowed: Slightly sensitive",
        ),
    ],
)
def test_a_value_that_is_not_allowed_changes_nothing(
    changes: ControlChanges, error: type[EarshotError], text: str
) -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        live = await ready(scene)
        with pytest.raises(error, match=text) as refused:
            await live.control(changes)
        assert refused.value.code == "invalid_value"
        assert satellite.commands == []

    against(act, Scene(Satellite(wake_words=TWO_WORDS)))


@pytest.mark.parametrize(
    ("satellite", "changes"),
    [
        (Satellite(features=RAW), ControlChanges(volume=10)),
        (Satellite(features=RAW), ControlChanges(is_muted=True)),
        (Satellite(settings=False), ControlChanges(is_microphone_off=True)),
        (Satellite(wake_words=()), ControlChanges(wake_words=("okay_nabu",))),
    ],
)
def test_what_it_does_not_have_is_named(satellite: Satellite, changes: ControlChanges) -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        with pytest.raises(Conflict, match="the satellite does not have") as refused:
            await live_of(scene).control(changes)
        assert refused.value.code == "not_supported"

    against(act, Scene(satellite))


def test_volume_and_stop_from_another_client_such_as_mqtt() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        live: object = await ready(scene)
        assert isinstance(live, AdjustableDevice)
        assert isinstance(live, StoppableDevice)
        await live.set_volume(20)
        await scene.until(lambda: live_of(scene).controls.volume == 20)
        await satellite.turn(ONE)
        await satellite.until(lambda: satellite.leds[-1] == "replying")
        await live.stop()
        await scene.idle()
        await satellite.until(lambda: satellite.leds[-1] == "idle")

    against(act, Scene(Satellite(plays_s=60.0)))
