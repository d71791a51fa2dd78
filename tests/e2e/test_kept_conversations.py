"""Conversations that a real server keeps: continued after a restart, and apart for each key."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.process import Running, run, serving
from tests.web.browser import chromium

pytestmark = [pytest.mark.real, pytest.mark.browser]

KEEPS = {"EARSHOT_HISTORY__DAYS": "30"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@contextmanager
def a_person(browser: Browser, server: Running, key: str = "") -> Iterator[Page]:
    """The page in a browser in which nothing is stored."""
    context = browser.new_context(base_url=server.url, locale="en-GB")
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.goto(f"/#key={key}" if key else "/")
    yield page
    context.close()


def ask(page: Page, text: str) -> None:
    """Writes a message and waits for its answer."""
    before = page.get_by_test_id("turn").count()
    page.get_by_test_id("text-input").fill(text)
    page.get_by_test_id("send").click()
    turn = page.get_by_test_id("turn").nth(before)
    expect(turn).to_have_attribute("data-status", "answered", timeout=60_000)


def open_menu(page: Page) -> None:
    page.get_by_test_id("conversation-open").click()
    expect(page.get_by_test_id("keep-on-server-choice")).to_be_visible()


def keep(page: Page) -> None:
    """Lets the server keep the conversation."""
    open_menu(page)
    with page.expect_response("**/turns") as sent:
        page.get_by_test_id("keep-on-server").check(force=True)
    assert sent.value.status == 204
    page.keyboard.press("Escape")


def test_a_follow_up_is_understood_after_a_restart_and_in_another_browser(
    browser: Browser, tmp_path: Path
) -> None:
    with serving(tmp_path, settings=KEEPS) as server:
        with a_person(browser, server) as page:
            ask(page, "turn on the kitchen lights")
            expect(page.get_by_test_id("entity-light.kitchen")).to_have_attribute(
                "data-state", "on"
            )
            keep(page)
        assert server.stop() == 0
    with serving(tmp_path, settings=KEEPS) as server, a_person(browser, server) as page:
        bedroom = page.get_by_test_id("entity-light.bedroom")
        expect(bedroom).to_have_attribute("data-state", "off")
        open_menu(page)
        page.get_by_test_id("kept-open").click()
        page.keyboard.press("Escape")
        expect(page.get_by_test_id("said")).to_contain_text("turn on the kitchen lights")
        expect(page.get_by_test_id("tools")).to_contain_text("HassTurnOn")
        ask(page, "and the bedroom?")
        expect(bedroom).to_have_attribute("data-state", "on")


def test_each_key_sees_only_its_own_conversations(browser: Browser, tmp_path: Path) -> None:
    settings = {**KEEPS, "EARSHOT_REQUIRE_KEY": "true"}
    said = {"anna": "turn on the kitchen lights", "ben": "what time is it"}
    with serving(tmp_path, settings=settings) as server:

        def manage_keys(*arguments: str) -> str:
            done = run(tmp_path, "keys", *arguments, "--url", server.url)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        keys = {name: manage_keys("add", name) for name in said}
        for name, key in keys.items():
            with a_person(browser, server, key) as page:
                ask(page, said[name])
                keep(page)
        for name, key in keys.items():
            with a_person(browser, server, key) as page:
                open_menu(page)
                expect(page.get_by_test_id("kept")).to_have_count(1)
                expect(page.get_by_test_id("kept-open")).to_contain_text(said[name])
        manage_keys("revoke", "anna")
        with a_person(browser, server, keys["ben"]) as page:
            open_menu(page)
            page.get_by_test_id("kept-delete-all").click()
            expect(page.get_by_test_id("kept")).to_have_count(0)
