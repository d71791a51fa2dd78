"""The devices view offers ESPHome satellites that were found, and adopts them with their key."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from core.errors import Conflict
from devices.esphome.adoption.adoption_api import AdoptionServices
from devices.esphome.adoption.discovery import SERVICE, FoundSatellite, FoundSatellites
from devices.fleet.directory import Device
from tests.web.browser import serving
from tests.web.page.house import House

pytestmark = pytest.mark.browser

KEY = "A" * 43 + "="


class Adopter:
    """Adopts a satellite that has this key."""

    def __init__(self) -> None:
        self.ours: set[str] = set()
        self.keys: list[str] = []

    async def macs(self) -> set[str]:
        return self.ours

    async def adopt(self, found: FoundSatellite, key: str) -> Device:
        self.keys.append(key)
        if key != KEY:
            raise Conflict("the key is not the one of it", code="wrong_key")
        self.ours.add(found.hardware_id)
        return Device(id="dev_1", kind="esphome", hardware_id=found.hardware_id, name=found.name)


def test_a_found_satellite_is_adopted_with_its_key(browser: Browser, tmp_path: Path) -> None:
    found, adopter = FoundSatellites(), Adopter()
    texts = {"mac": "aabbccddeeff", "friendly_name": "Hall <b>PE", "api_encryption": "Noise"}
    found.note(f"hall.{SERVICE}", ["192.168.1.40"], 6053, texts)
    house = House(
        database=f"sqlite:///{tmp_path}/devices.db",
        satellites=AdoptionServices(found, adopter.macs, adopter.adopt),
    )
    with serving(house):
        context = browser.new_context(base_url=house.url, locale="en-GB")
        page = context.new_page()
        page.goto("/")
        page.get_by_test_id("devices-open").click()
        card = page.get_by_test_id("found-satellite")
        expect(card).to_contain_text("Hall <b>PE")
        expect(card).to_contain_text("192.168.1.40")
        page.get_by_test_id("adopt").click()
        expect(card).to_contain_text(".storage/esphome.encryption_keys")
        page.get_by_test_id("satellite-key").fill("B" * 43 + "=")
        page.get_by_test_id("adopt-send").click()
        expect(page.get_by_test_id("devices-note")).to_contain_text("That did not work")
        page.get_by_test_id("satellite-key").fill(KEY)
        page.get_by_test_id("adopt-send").click()
        expect(page.get_by_test_id("devices-note")).to_have_text("Hall <b>PE is adopted.")
        expect(page.get_by_test_id("found-satellites")).to_be_hidden()
        context.close()
    assert adopter.keys[-1] == KEY
