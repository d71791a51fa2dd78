"""One browser for all page tests that a worker runs in a row.

While it runs, no other test can start an event loop.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, sync_playwright

from tests.web.browser import Stub, launched, serving

FAKE_CALL = Path(__file__).with_name("fake_call.js")


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    with launched(playwright, prefers_shell=True) as started:
        yield started


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    with serving(stub):
        yield stub


@pytest.fixture
def context(browser: Browser, stub: Stub) -> Iterator[BrowserContext]:
    context = browser.new_context(
        base_url=stub.url,
        locale="en-GB",
        viewport={"width": 1360, "height": 860},
        reduced_motion="reduce",  # moving pictures take a tenth of these tests' processor time
    )
    context.add_init_script(path=FAKE_CALL)
    yield context
    context.close()


@pytest.fixture
def settings_page(browser: Browser, server: Stub) -> Iterator[Page]:
    """The page of the test's own server, with its settings open. It may use the microphone."""
    context = browser.new_context(
        base_url=server.url, locale="en-GB", permissions=["microphone"], reduced_motion="reduce"
    )
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto("/")
    page.get_by_test_id("settings-open").click()
    yield page
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A new tab without the page. A script error or a blocked file fails the test."""
    page = context.new_page()
    page.set_default_timeout(30_000)

    def fail(error: object) -> None:
        raise AssertionError(f"the page failed: {error}")

    page.on("pageerror", fail)
    page.on(
        "console",
        lambda said: fail(said.text) if "Content Security Policy" in said.text else None,
    )
    return page
