"""Clicks on the home: lamps, the shopping list, timers."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.browser import Stub

pytestmark = pytest.mark.browser


def test_a_lamp_is_switched_by_a_click_and_keeps_the_focus(page: Page, stub: Stub) -> None:
    page.goto("/")
    lamp = page.get_by_test_id("entity-light.kitchen")
    button = lamp.get_by_role("button")
    expect(button).to_have_attribute("aria-pressed", "false")
    button.focus()
    page.keyboard.press("Enter")
    expect(lamp).to_have_attribute("data-state", "on")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(button).to_be_focused()
    page.keyboard.press("Space")
    expect(lamp).to_have_attribute("data-state", "off")
    assert stub.home.entity("light.kitchen").state == "off"
    assert stub.sessions == []  # no call is needed


def test_a_lock_is_no_button(page: Page, stub: Stub) -> None:
    page.goto("/")
    expect(page.locator(".entity.lock").first).to_be_visible()
    expect(page.locator(".entity.lock button")).to_have_count(0)


def test_an_item_is_ticked_off_by_a_click(page: Page, stub: Stub) -> None:
    stub.home.add_item("milk")
    page.goto("/")
    item = page.get_by_role("checkbox", name="milk")
    expect(item).not_to_be_checked()
    item.click()
    expect(item).to_be_checked()
    assert stub.home.open_items() == ()
    item.click()
    expect(item).not_to_be_checked()


def test_a_timer_is_cancelled_by_its_button(page: Page, stub: Stub) -> None:
    stub.timers.start("conv_1", "en", 600, "tea")
    page.goto("/")
    expect(page.get_by_test_id("timer")).to_contain_text("tea")
    page.get_by_role("button", name="Cancel tea").click()
    expect(page.get_by_test_id("timer")).to_have_count(0)
    assert stub.timers.states() == ()


def test_a_refused_click_says_why(page: Page, stub: Stub) -> None:
    page.goto("/")
    button = page.get_by_test_id("entity-light.kitchen").get_by_role("button")
    expect(button).to_be_visible()
    stub.key = "secret"
    button.click()
    expect(page.get_by_test_id("message")).to_contain_text("needs a key")
