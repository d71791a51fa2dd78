"""The devices view of the page, over a real registry: live list, approval, names, announcements."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.devices.registry.harness import contact
from tests.web.browser import Stub, serving
from tests.web.page.house import Board, House

pytestmark = pytest.mark.browser


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(database=f"sqlite:///{tmp_path}/devices.db")
    with serving(house):
        yield house


@pytest.fixture
def page(browser: Browser, house: House) -> Iterator[Page]:
    context = browser.new_context(base_url=house.url, locale="en-GB", color_scheme="light")
    page = context.new_page()
    page.goto("/")
    yield page
    context.close()


def view(page: Page) -> None:
    page.get_by_test_id("devices-open").click()


def test_a_new_device_appears_and_is_approved_by_its_code(page: Page, house: House) -> None:
    view(page)
    expect(page.get_by_test_id("device-list")).to_contain_text("No device has connected yet")
    device = house.new(name="box", board="esp-box-3", firmware="2.0.3")
    card = page.get_by_test_id("device")
    expect(card).to_contain_text(device.pairing_code)
    expect(page.get_by_test_id("devices-badge")).to_have_text("1 to approve")
    page.get_by_test_id("pair-code").fill("000000" if device.pairing_code != "000000" else "1")
    page.get_by_test_id("pair").click()
    expect(page.get_by_test_id("devices-note")).to_contain_text("That did not work")
    page.get_by_test_id("pair-code").fill(device.pairing_code)
    page.get_by_test_id("pair").click()
    expect(card).to_have_attribute("data-standing", "approved")
    expect(page.get_by_test_id("pair-form")).to_be_hidden()
    assert house.do(house.registry.by_id(device.id)).standing == "approved"


def test_a_known_board_with_a_new_identity_is_approved_again(page: Page, house: House) -> None:
    reset = replace(contact(), identity=b"1" * 32)
    device = house.do(house.registry.check_in(reset))
    house.do(house.registry.approve(device.id, device.pairing_code))
    view(page)
    card = page.get_by_test_id("device")
    expect(card).to_have_attribute("data-standing", "approved")
    expect(page.get_by_test_id("device-claim")).to_have_count(0)
    claim = house.do(house.registry.check_in(replace(reset, identity=b"2" * 32)))
    said = page.get_by_test_id("device-claim")
    expect(said).to_contain_text("Known board, new identity")
    expect(said).to_contain_text(claim.pairing_code)
    expect(page.get_by_test_id("devices-badge")).to_have_text("1 to approve")
    expect(page.get_by_test_id("pair-form")).to_be_visible()
    page.get_by_test_id("device-approve").click()
    expect(said).to_have_count(0)
    assert house.do(house.registry.by_id(device.id)).identity == b"2" * 32


def test_an_approval_does_not_apply_to_an_identity_that_came_later(
    page: Page, house: House
) -> None:
    reset = replace(contact(), identity=b"1" * 32)
    device = house.do(house.registry.check_in(reset))
    view(page)
    card = page.get_by_test_id("device")
    expect(card).to_contain_text(device.pairing_code)
    page.route("**/v1/devices/events", lambda route: route.abort())
    page.evaluate("dispatchEvent(new Event('offline'))")  # what comes now is not drawn
    expect(page.get_by_test_id("devices-note")).to_contain_text("Not up to date")
    assert house.known is not None
    house.known.clock.go_on(timedelta(minutes=10))
    other = house.do(house.registry.check_in(replace(reset, identity=b"2" * 32)))
    assert other.pairing_code != device.pairing_code
    page.get_by_test_id("device-approve").click()
    expect(page.get_by_test_id("devices-note")).to_contain_text("That did not work")
    assert house.do(house.registry.by_id(device.id)).standing == "new"


def test_a_device_is_named_and_given_a_room_and_a_profile(page: Page, house: House) -> None:
    device = house.new()
    house.do(house.registry.approve(device.id, device.pairing_code))
    view(page)
    page.get_by_test_id("device-edit").click()
    page.get_by_test_id("edit-name").fill("Kitchen <b>speaker</b>")
    page.get_by_test_id("edit-area").fill("kitchen")
    page.get_by_role("spinbutton", name="Volume").fill("35")
    page.get_by_test_id("edit-echo").select_option("cancel")
    house.new(hardware_id="aa:bb:cc:dd:ee:02")  # a live update keeps what is being typed
    expect(page.get_by_test_id("devices-badge")).to_be_attached()
    expect(page.get_by_test_id("edit-area")).to_have_value("kitchen")
    page.get_by_test_id("edit-save").click()
    expect(page.get_by_role("heading", name="Kitchen <b>speaker</b>")).to_be_visible()
    kept = house.do(house.registry.by_id(device.id))
    assert (kept.area, kept.profile.volume, kept.profile.voice) == ("kitchen", 35, "")
    assert kept.profile.echo == "cancel"
    page.get_by_test_id("device-edit").first.click()
    expect(page.get_by_test_id("edit-echo")).to_have_value("cancel")


def test_the_state_of_a_device_is_shown_live_with_its_last_turn(page: Page, house: House) -> None:
    device = house.new()
    house.do(house.registry.approve(device.id, device.pairing_code))
    view(page)
    card = page.get_by_test_id("device")
    expect(card).to_contain_text("away")
    board = Board()
    house.connect(device, board)
    expect(card).to_contain_text("idle")
    board.activity = "speaking"
    board.timing = {
        "candidate": 60.0,
        "endpoint": 200.0,
        "asr_final": 90.0,
        "gate_open": 201.0,
        "playout_start": 230.0,
    }
    house.soon(house.presence.note_change)
    expect(card).to_contain_text("speaking")
    expect(card.get_by_test_id("latency")).to_have_text("230 ms to first sound")
    card.get_by_test_id("latency").click()
    expect(card.get_by_test_id("stage-asr")).to_have_attribute("data-ms", "30.0")
    board.activity = "idle"
    house.soon(house.presence.note_change)
    expect(card).to_have_attribute("data-doing", "idle")
    expect(card.get_by_test_id("stage-asr")).to_be_visible()  # still open


def test_an_announcement_shows_whether_it_was_played(page: Page, house: House) -> None:
    device, board = house.new(name="Hall"), Board()
    house.do(house.registry.approve(device.id, device.pairing_code))
    view(page)
    announce(page, "dinner is ready")
    expect(page.get_by_test_id("devices-note")).to_contain_text("is away")
    expect(page.get_by_test_id("device-waiting")).to_have_text("1 notice waits until it connects")
    house.connect(device, board)
    announce(page, "come down")
    expect(page.get_by_test_id("devices-note")).to_contain_text("Said on")
    assert board.said == ["come down"]
    page.get_by_test_id("device-restart").click()
    expect(page.get_by_test_id("devices-note")).to_contain_text("told to restart")
    assert board.restarts == 1


def announce(page: Page, text: str) -> None:
    page.get_by_test_id("device-announce").click()
    page.get_by_test_id("announce-text").fill(text)
    page.get_by_test_id("announce-send").click()


def test_forgetting_a_device_asks_for_confirmation(page: Page, house: House) -> None:
    device = house.new()
    house.do(house.registry.block(device.id))
    view(page)
    expect(page.get_by_test_id("device")).to_contain_text("blocked")
    page.get_by_test_id("device-forget").click()
    page.get_by_role("button", name="Keep", exact=True).click()
    page.get_by_test_id("device-forget").click()
    page.get_by_test_id("device-forget-sure").click()
    expect(page.get_by_test_id("device")).to_have_count(0)
    assert not house.do(house.registry.all_devices())


def test_the_view_is_a_dialog_usable_by_keyboard_and_on_phones(page: Page, house: House) -> None:
    house.new(name="A board with a rather long name that somebody gave it")
    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_test_id("devices-open").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Devices")
    expect(dialog).to_be_visible()
    assert page.evaluate("document.getElementById('devices').scrollWidth <= innerWidth")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_test_id("devices-open")).to_be_focused()


def test_a_live_update_keeps_focus_and_text_of_an_open_form(page: Page, house: House) -> None:
    device, board = house.new(name="Hall"), Board()
    house.do(house.registry.approve(device.id, device.pairing_code))
    view(page)
    page.get_by_test_id("device-announce").click()
    page.keyboard.type("dinner is")  # the form has the focus
    house.new(hardware_id="aa:bb:cc:dd:ee:02")
    expect(page.get_by_test_id("device")).to_have_count(2)
    house.connect(device, board)
    expect(page.get_by_text("idle", exact=True)).to_be_visible()
    page.keyboard.type(" ready")
    expect(page.get_by_test_id("announce-text")).to_have_value("dinner is ready")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("devices-note")).to_contain_text("Said on Hall")
    assert board.said == ["dinner is ready"]


def test_the_view_has_an_address_and_the_back_button_closes_it(page: Page, house: House) -> None:
    dialog = page.get_by_role("dialog", name="Devices")
    view(page)
    expect(dialog).to_be_visible()
    assert page.url == f"{house.url}/#/devices"
    page.go_back()
    expect(dialog).to_be_hidden()
    page.go_forward()
    expect(dialog).to_be_visible()
    page.get_by_test_id("devices-close").click()
    expect(dialog).to_be_hidden()
    page.wait_for_url(f"{house.url}/")
    page.goto(f"{house.url}/#/devices")
    page.reload()  # a link from elsewhere
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.wait_for_url(f"{house.url}/")


def test_esc_closes_an_open_form_first(page: Page, house: House) -> None:
    device = house.new(name="Hall")
    house.do(house.registry.approve(device.id, device.pairing_code))
    view(page)
    page.get_by_test_id("device-edit").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Devices")).to_be_hidden()
    house.new(hardware_id="aa:bb:cc:dd:ee:02")
    view(page)
    expect(page.get_by_test_id("device")).to_have_count(2)  # the list lives on
    expect(page.get_by_test_id("edit-name")).to_have_count(0)


def test_a_server_without_devices_has_no_view(browser: Browser) -> None:
    stub = Stub()
    with serving(stub):
        page = browser.new_page(base_url=stub.url)
        page.goto("/")
        expect(page.get_by_test_id("home")).to_contain_text("Kitchen")
        expect(page.get_by_test_id("devices-open")).to_be_hidden()
        page.close()
