"""A recogniser is fetched on the page. The server's own side is tested in tests/server/models."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import web as aioweb
from playwright.sync_api import Browser, Page, expect

from pipeline.tools.skills import HomeControls
from tests.web.browser import Stub, serving
from tests.web.reports import REPORT
from web.engines import EngineOffer, EnginesReport, ModelOffer
from web.routes import PageDoor

pytestmark = pytest.mark.browser

BASE = {
    "name": "base",
    "kind": "asr",
    "size_bytes": 148_000_000,
    "languages": "99 languages",
    "is_multilingual": True,
    "suits": "four cores",
    "is_installed": False,
    "is_on_package_index": False,
}
RUNNING = {
    "model": "base",
    "state": "running",
    "done_bytes": 37_000_000,
    "total_bytes": 148_000_000,
    "seconds_left": 130,
    "note": "",
    "message": "",
}


@dataclass
class Server(Stub):
    """The page's server with one recogniser that can be fetched."""

    base: dict[str, Any] = field(default_factory=BASE.copy)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def app(self) -> aioweb.Application:
        app = super().app()
        app.router.add_get("/v1/models/pull", self.downloads)
        app.router.add_post("/v1/models/pull", self.pull)
        app.router.add_delete("/v1/models/pull/{model}", self.cancel)
        return app

    def door(self) -> PageDoor:
        controls = HomeControls(self.home, self.timers)
        return PageDoor(self.home, controls, self.report)

    def report(self) -> EnginesReport:
        if not self.base["is_installed"]:
            return REPORT
        model = ModelOffer("faster_whisper", (), 148, is_loaded=False, memory_mb=0, why="")
        fetched = EngineOffer("base", ("en", "de"), installed=True, model=model)
        asr = msgspec.structs.replace(REPORT.asr, available=(*REPORT.asr.available, fetched))
        return msgspec.structs.replace(REPORT, asr=asr)

    async def downloads(self, _: aioweb.Request) -> aioweb.Response:
        report = {"available": [self.base], "pulls": self.pulls, "free_bytes": 20_000_000_000}
        return aioweb.json_response(report)

    async def pull(self, request: aioweb.Request) -> aioweb.Response:
        self.asked.append(("pull", await request.json()))
        self.pulls = [RUNNING]
        return aioweb.json_response(RUNNING)

    async def cancel(self, request: aioweb.Request) -> aioweb.Response:
        self.asked.append(("cancel", request.match_info["model"]))
        self.pulls = [{**RUNNING, "state": "cancelled"}]
        return aioweb.Response(status=204)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with serving(server):
        yield server


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    context = browser.new_context(base_url=server.url, locale="en-GB", permissions=["microphone"])
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto("/")
    yield page
    context.close()


def test_one_click_fetches_a_recogniser_that_hears_the_language(page: Page, server: Server) -> None:
    fetch = page.get_by_test_id("fetch")
    expect(page.get_by_test_id("mic")).to_be_visible()
    expect(fetch).to_be_hidden()
    page.get_by_test_id("language").select_option("de")
    expect(page.get_by_test_id("mic")).to_have_attribute("aria-disabled", "true")
    expect(fetch).to_have_text("Fetch “base” (148 MB): it hears German, too")
    fetch.click()
    state = page.get_by_test_id("fetch-state")
    expect(state).to_have_text("Fetching “base”: 37 MB of 148 MB, 3 min left")
    assert server.asked == [("pull", {"model": "base", "stream": False})]
    page.reload()  # the download goes on, and the page shows it again
    expect(state).to_contain_text("37 MB of 148 MB")
    server.soon(lambda: _finish(server))
    expect(page.get_by_test_id("mic")).to_have_attribute("aria-disabled", "false")
    expect(fetch).to_be_hidden()
    expect(page.get_by_test_id("engine")).to_have_value("base")


def test_a_download_is_cancelled_and_a_failed_one_says_why(page: Page, server: Server) -> None:
    page.get_by_test_id("language").select_option("de")
    fetch, state = page.get_by_test_id("fetch"), page.get_by_test_id("fetch-state")
    fetch.focus()
    page.keyboard.press("Enter")
    expect(fetch).to_have_text("Cancel")
    fetch.click()
    expect(fetch).to_contain_text("Fetch “base”")
    assert server.asked[-1] == ("cancel", "base")
    fetch.click()
    expect(fetch).to_have_text("Cancel")
    failed = {**RUNNING, "state": "failed", "message": "the hub does not answer"}
    server.soon(lambda: server.pulls.__setitem__(0, failed))
    expect(state).to_have_text("“base” was not fetched: the hub does not answer")
    expect(fetch).to_contain_text("Fetch “base”")


def _finish(server: Server) -> None:
    server.base["is_installed"] = True
    server.pulls = [{**RUNNING, "state": "done"}]
