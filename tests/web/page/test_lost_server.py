"""A server that stops, stays silent or hangs: the page shows it, and reconnects when it is back."""

import re
from contextlib import ExitStack
from typing import Any

import pytest
from aiohttp import web as aioweb
from playwright.sync_api import BrowserContext, Page, Request, expect

from tests.web.browser import Stub, serving
from tests.web.page.calls import is_in

pytestmark = pytest.mark.browser

HEARTBEATS_MISSED_MS = 21_000
"The server sends one each 15 s, and may be 5 s late."
ANSWER_MS = 16_000
"A request without an answer is given up after 15 s."

SOUND_COMES = """() => {
  let packetsReceived = 1;
  calls[0].getStats = async () => {
    if (!window.lostAt) packetsReceived += 1;
    return new Map([["in", { type: "inbound-rtp", packetsReceived }]]);
  };
  const message = document.getElementById("message");
  const note = () => { if (!message.hidden) window.toldAt ??= performance.now(); };
  new MutationObserver(note).observe(message, { attributes: true });
}"""
"Sound arrives until `lostAt`; when the page says anything is noted as `toldAt`."


def test_a_lost_server_and_its_return_are_shown_within_a_second(
    context: BrowserContext, page: Page
) -> None:
    with ExitStack() as first:
        stub = Stub()
        first.enter_context(serving(stub))
        page.goto(stub.url)
        expect(page.locator("#home-state")).to_have_text("live")
        page.get_by_test_id("mic").click()
        is_in(page, "listening")
        page.evaluate(SOUND_COMES)
        page.evaluate("() => { window.lostAt = performance.now(); }")
    message = page.get_by_test_id("message")
    expect(message).to_be_visible()
    assert page.evaluate("toldAt - lostAt") < 1_000
    expect(page.locator("#home-state")).to_have_text("not live")
    is_in(page, "reconnecting")  # long before the 3 s that a silent call is given
    second = Stub(port=int(stub.url.rsplit(":", 1)[1]))
    second.home.update("light.kitchen", "on")
    with serving(second):
        expect(page.get_by_test_id("entity-light.kitchen")).to_have_attribute("data-state", "on")
        is_in(page, "listening")
        expect(message).to_be_hidden()


def test_a_call_whose_process_has_ended_is_opened_again_at_once(page: Page, stub: Stub) -> None:
    page.goto("/")
    page.get_by_test_id("mic").click()
    is_in(page, "listening")
    gone = {"error": {"code": "call_not_found", "message": "There is no such call."}}
    its_path = re.compile(r"/v1/realtime/calls/rtc_\d+$")
    page.route(its_path, lambda route: route.fulfill(status=404, json=gone))
    page.evaluate(SOUND_COMES)
    page.evaluate("() => { window.lostAt = performance.now(); }")
    expect(page.get_by_test_id("message")).to_be_visible()
    assert page.evaluate("toldAt - lostAt") < 1_500
    is_in(page, "listening")
    assert len(stub.sessions) == 2


def test_a_page_opened_before_its_server_fills_when_the_server_starts(
    page: Page, stub: Stub
) -> None:
    page.route("**/earshot/**", lambda route: route.abort())
    page.goto("/")
    expect(page.get_by_test_id("message")).to_have_attribute("data-code", "unreachable")
    page.unroute("**/earshot/**")
    expect(page.get_by_test_id("entity-light.kitchen")).to_be_visible()
    expect(page.get_by_test_id("message")).to_be_hidden()
    expect(page.get_by_test_id("engines")).to_contain_text("PocketSphinx")


def streams_of(page: Page) -> list[Request]:
    """Collects the requests for the home's event stream."""
    asked: list[Request] = []
    page.on("request", lambda one: asked.append(one) if "home/events" in one.url else None)
    return asked


@pytest.mark.parametrize("by", ["silence", "sleep", "network"])
def test_a_stream_without_heartbeats_is_requested_again(page: Page, by: str) -> None:
    asked = streams_of(page)
    page.clock.install()
    page.goto("/")
    expect(page.locator("#home-state")).to_have_text("live")
    before = len(asked)
    with page.expect_request("**/home/events*"):
        if by == "silence":
            page.clock.fast_forward(HEARTBEATS_MISSED_MS)
        elif by == "sleep":  # timers stood still, the clock did not
            page.evaluate("(ms) => { const was = Date.now; Date.now = () => was() + ms; }", 30_000)
            page.evaluate("dispatchEvent(new Event('focus'))")
        else:
            page.evaluate("dispatchEvent(new Event('online'))")
        page.clock.run_for(300)
    expect(page.locator("#home-state")).to_have_text("live")
    assert len(asked) > before


def test_a_request_to_a_hanging_server_times_out(page: Page, stub: Stub) -> None:
    stub.is_stuck = True
    page.clock.install()
    page.goto("/")
    with page.expect_request("**/v1/realtime/calls"):
        page.get_by_test_id("mic").click()
    is_in(page, "connecting")
    page.clock.fast_forward(ANSWER_MS)
    expect(page.get_by_test_id("message")).to_have_attribute("data-code", "unreachable")
    is_in(page, "off")


def test_a_half_typed_key_is_kept(page: Page, stub: Stub) -> None:
    stub.key = "s3cret"
    page.goto("/")
    key = page.get_by_test_id("key-input")
    key.fill("s3c")
    page.get_by_test_id("page-language").select_option("de")  # redrawn
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(key).to_have_value("s3c")


class Restarting(Stub):
    """A server behind a proxy that has no device list at first, and loses it once."""

    asked = 0

    def app(self) -> aioweb.Application:
        app = super().app()
        app.router.add_get("/v1/devices/events", self.devices)
        return app

    async def devices(self, request: aioweb.Request) -> aioweb.StreamResponse:
        self.asked += 1
        if self.asked in (1, 3):
            raise aioweb.HTTPNotFound
        response = aioweb.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'event: devices\ndata: {"devices": []}\n\n')
        return response  # ends: the proxy restarts


def test_a_404_does_not_end_the_list_of_devices(context: BrowserContext) -> None:
    stub = Restarting()
    with serving(stub):
        page: Any = context.new_page()
        page.clock.install()
        page.goto(stub.url)
        for _ in range(100):
            if stub.asked > 3:
                break
            page.clock.fast_forward(1_000)
            page.wait_for_timeout(20)
        assert stub.asked > 3
        expect(page.get_by_test_id("devices-open")).to_be_visible()
