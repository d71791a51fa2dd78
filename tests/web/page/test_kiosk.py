"""The wall display, and the page as an app and below a proxy's path."""

import json

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser import Stub, serving
from tests.web.page.calls import a_turn, is_in, opened, say
from tests.web.page.conftest import FAKE_CALL

pytestmark = pytest.mark.browser


def test_the_wall_display_shows_the_last_turn_in_large_words_and_no_controls(page: Page) -> None:
    opened(page)
    say(page, *a_turn(1, "turn on the lamp", "Done"))
    say(page, *a_turn(2, "what time is it", "Noon"))
    page.get_by_test_id("kiosk-open").click()
    expect(page.get_by_test_id("turn")).to_have_count(2)
    expect(page.get_by_test_id("turn").first).to_be_hidden()
    expect(page.get_by_test_id("reply").last).to_have_text("Earshot: Noon")
    size = "getComputedStyle(document.querySelector('.turn:last-child .reply')).fontSize"
    assert float(page.evaluate(size).removesuffix("px")) > 50
    for control in ("language", "ptt", "text-input", "home", "hangup"):
        expect(page.get_by_test_id(control)).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("language")).to_be_visible()
    expect(page.get_by_test_id("turn").first).to_be_visible()


def test_a_touch_anywhere_on_the_wall_display_begins_to_listen(page: Page) -> None:
    page.goto("/#/kiosk")
    expect(page.get_by_test_id("language")).to_be_hidden()
    page.locator(".hello").click()
    is_in(page, "listening")
    page.locator(".hello").click()
    is_in(page, "listening")  # a second touch does not hang up
    page.get_by_test_id("kiosk-leave").click()
    expect(page.get_by_test_id("language")).to_be_visible()


def test_the_wall_display_calls_again_after_the_server_hung_up(page: Page) -> None:
    page.goto("/#/kiosk")
    page.locator(".hello").click()
    is_in(page, "listening")
    calls = page.evaluate("window.calls.length")
    idle = {"type": "error", "error": {"code": "session_idle", "message": "idle"}}
    say(page, idle)
    page.wait_for_function(f"window.calls.length > {calls}")
    is_in(page, "listening")


def test_the_page_can_be_installed_as_an_app(page: Page, stub: Stub) -> None:
    page.goto("/")
    link = page.locator("link[rel=manifest]").evaluate("(link) => link.href")
    answer = page.request.get(link)
    assert answer.headers["content-type"].startswith("application/manifest+json")
    manifest = json.loads(answer.text())
    assert {"name", "start_url", "display", "icons"} <= set(manifest)
    sizes = set()
    for icon in manifest["icons"]:
        image = page.request.get(f"{stub.url}/static/app/{icon['src']}")
        assert image.ok
        assert image.headers["content-type"].split(";")[0] == icon["type"]
        sizes.add(icon["sizes"])
    assert {"192x192", "512x512"} <= sizes
    # The browser itself reports what keeps the page from being installed.
    session = page.context.new_cdp_session(page)
    session.send("Page.enable")
    assert session.send("Page.getAppManifest")["errors"] == []
    problems = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert {problem["errorId"] for problem in problems} <= {"in-incognito"}


def test_the_page_works_below_a_path_of_a_proxy(browser: Browser) -> None:
    stub = Stub(prefix="/api/hassio_ingress/token")
    with serving(stub):
        context = browser.new_context(locale="en-GB")
        context.add_init_script(path=FAKE_CALL)
        page = context.new_page()
        page.goto(f"{stub.url}/")
        expect(page.get_by_test_id("entity-light.kitchen")).to_be_visible()
        page.get_by_test_id("mic").click()
        is_in(page, "listening")
        page.get_by_test_id("hangup").click()
        assert stub.hung_up.get(timeout=10) == "rtc_1"
        context.close()
