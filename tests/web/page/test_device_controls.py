"""The devices view shows the settings of a device, follows them, and changes them."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from devices.fleet.presence import DeviceControls, DeviceSelect, DeviceSwitch, DeviceWakeWord
from tests.web.browser import serving
from tests.web.page.house import House, SettableBoard

pytestmark = pytest.mark.browser

NABU = DeviceWakeWord(id="okay_nabu", words="Okay Nabu", is_active=True)
JARVIS = DeviceWakeWord(id="hey_jarvis", words="Hey <b>Jarvis", is_active=False)
MYCROFT = DeviceWakeWord(id="hey_mycroft", words="Hey Mycroft", is_active=False)

CONTROLS = DeviceControls(
    volume=50,
    is_muted=False,
    is_microphone_off=False,
    wake_words=(NABU, JARVIS, MYCROFT),
    max_wake_words=2,
    switches=(DeviceSwitch(id="wake_sound", name="Wake sound", is_on=True),),
    selects=(DeviceSelect(id="much", name="Sensitivity", options=("Low", "High"), choice="Low"),),
)


def test_settings_of_a_satellite_are_shown_followed_and_changed(
    browser: Browser, tmp_path: Path
) -> None:
    house = House(database=f"sqlite:///{tmp_path}/devices.db")
    board = SettableBoard(controls=CONTROLS)

    def show(controls: DeviceControls) -> None:
        async def changed() -> None:
            board.controls = controls
            house.presence.note_change()

        house.do(changed())

    with serving(house):
        device = house.new(name="Hall")
        house.do(house.registry.approve(device.id, device.pairing_code))
        house.connect(device, board)
        context = browser.new_context(base_url=house.url, locale="en-GB")
        page = context.new_page()
        page.goto("/")
        page.get_by_test_id("devices-open").click()
        volume = page.get_by_test_id("control-volume")
        expect(volume).to_have_value("50")
        expect(page.get_by_test_id("device")).to_contain_text("Hey <b>Jarvis")
        volume.fill("80")
        page.get_by_test_id("control-muted").check()
        page.get_by_test_id("control-wake-hey_jarvis").check()
        page.get_by_test_id("control-select-much").select_option("High")
        expect(page.get_by_test_id("control-wake-okay_nabu")).to_be_disabled()  # the only one
        both = (NABU, replace(JARVIS, is_active=True), MYCROFT)
        show(replace(CONTROLS, volume=30, is_microphone_off=True, wake_words=both))
        expect(volume).to_have_value("30")
        expect(page.get_by_test_id("control-microphone")).to_be_checked()
        expect(page.get_by_test_id("control-wake-hey_mycroft")).to_be_disabled()  # two are active
        board.refuses = "it has no such switch"
        page.get_by_test_id("control-switch-wake_sound").click()
        expect(page.get_by_test_id("devices-note")).to_contain_text("That did not work")
        expect(page.get_by_test_id("control-switch-wake_sound")).to_be_checked()
        show(replace(CONTROLS, max_wake_words=1))
        expect(page.get_by_test_id("control-wake-word")).to_have_value("okay_nabu")
        context.close()
    changes = [
        (one.volume, one.is_muted, one.wake_words, dict(one.selects)) for one in board.changes
    ]
    assert sorted(changes, key=str) == sorted(
        [
            (80, None, None, {}),
            (None, True, None, {}),
            (None, None, ("okay_nabu", "hey_jarvis"), {}),
            (None, None, None, {"much": "High"}),
        ],
        key=str,
    )
