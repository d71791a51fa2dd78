"""The connection quality on the page: its figures, their grade and the indicator."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser import Stub, serving
from tests.web.page.calls import opened, say

pytestmark = pytest.mark.browser

Json = dict[str, Any]

FIGURES = """async ([reports, server]) => {
  const module = await import("/static/call/quality.js");
  const { emptyQuality, figures, graded, withReport, withServerReport } = module;
  let quality = emptyQuality();
  for (const report of reports) {
    quality = withReport(quality, new Map(report.map((one) => [one.id, one])));
  }
  if (server) quality = withServerReport(quality, server);
  const known = figures(quality);
  return { ...known, verdict: graded(known) };
}"""

SERVER: Json = {
    "transport": "webrtc",
    "round_trip_ms": 11.0,
    "codec": "opus",
    "protocol": "udp",
    "local_candidate": "host",
    "remote_candidate": "prflx",
    "up": {"packets": 500, "lost": 5, "loss": 0.01, "jitter_ms": 3.0, "buffer_ms": 0.4},
    "down": {"packets": 500, "lost": 0, "loss": 0.0, "jitter_ms": 2.0, "buffer_ms": None},
}


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    stub = Stub()
    with serving(stub):
        page = browser.new_page()
        page.goto(f"{stub.url}/static/icon.svg")
        yield page
        page.close()


def stats(
    *, received: int = 500, lost: int = 0, trip_s: float = 0.02, **inbound: float
) -> list[Json]:
    """Returns statistics as Chromium reports them."""
    return [
        {
            "id": "in",
            "type": "inbound-rtp",
            "kind": "audio",
            "packetsReceived": received,
            "packetsLost": lost,
            "jitter": 0.002,
            "jitterBufferDelay": 0.04 * 960 * received,
            "jitterBufferEmittedCount": 960 * received,
            "codecId": "codec",
            **inbound,
        },
        {"id": "codec", "type": "codec", "mimeType": "audio/opus"},
        {"id": "rin", "type": "remote-inbound-rtp", "kind": "audio", "fractionLost": 0.02},
        {"id": "t", "type": "transport", "selectedCandidatePairId": "pair"},
        {"id": "other", "type": "candidate-pair", "currentRoundTripTime": 9},
        {
            "id": "pair",
            "type": "candidate-pair",
            "currentRoundTripTime": trip_s,
            "localCandidateId": "here",
            "remoteCandidateId": "there",
        },
        {
            "id": "here",
            "type": "local-candidate",
            "candidateType": "relay",
            "protocol": "udp",
            "relayProtocol": "tcp",
        },
        {"id": "there", "type": "remote-candidate", "candidateType": "host"},
    ]


def known(tab: Page, *reports: list[Json], server: Json | None = None) -> Json:
    found: Json = tab.evaluate(FIGURES, [list(reports), server])
    return found


def test_figures_combine_browser_and_server_statistics(tab: Page) -> None:
    found = known(tab, stats(received=0), stats(received=495, lost=5), server=SERVER)
    assert found["loss_down"] == pytest.approx(0.01)
    assert found["buffer_down"] == pytest.approx(40)
    assert (found["loss_up"], found["jitter_up"], found["buffer_up"]) == (0.01, 3, 0.4)
    assert (found["round_trip"], found["jitter_down"]) == (20, 2)
    assert (found["codec"], found["local"], found["remote"]) == ("opus", "relay", "host")
    assert (found["protocol"], found["transport"]) == ("tcp", "webrtc")


def test_a_stock_server_reports_loss_by_rtcp_and_no_buffer(tab: Page) -> None:
    found = known(tab, stats())
    assert (found["loss_up"], found["buffer_up"]) == (0.02, None)


def test_loss_is_forgotten_after_ten_seconds(tab: Page) -> None:
    lossy = [stats(received=50 * n, lost=10 if n else 0) for n in range(11)]
    assert known(tab, *lossy)["loss_down"] == pytest.approx(10 / 510)
    assert known(tab, *lossy, stats(received=550, lost=10))["loss_down"] == 0


def test_unknown_figures_have_no_grade(tab: Page) -> None:
    for found in (known(tab), known(tab, [])):
        assert found["verdict"] is None
        assert found["round_trip"] is None


@pytest.mark.parametrize(
    ("change", "grade", "because"),
    [
        ({}, "good", None),
        ({"trip_s": 0.2}, "fair", "round_trip"),
        ({"trip_s": 0.5}, "poor", "round_trip"),
        ({"jitter": 0.03}, "fair", "jitter"),
        ({"lost": 20}, "fair", "loss"),
        ({"lost": 100}, "poor", "loss"),
        ({"lost": 100, "trip_s": 0.3}, "poor", "loss"),
    ],
)
def test_the_grade_is_that_of_the_worst_figure(
    tab: Page, change: Json, grade: str, because: str | None
) -> None:
    found = known(tab, stats(**change), server=SERVER)
    assert found["verdict"] == {"grade": grade, "because": because}


def quality_of(page: Page, report: list[Json]) -> None:
    page.evaluate("(report) => { calls.at(-1).stats = report; }", report)


def test_the_indicator_opens_the_figures_by_keyboard(page: Page) -> None:
    page.goto("/")
    button, details = page.get_by_test_id("quality"), page.get_by_test_id("quality-details")
    expect(button).to_be_hidden()
    opened(page)
    quality_of(page, stats())
    say(page, {"type": "earshot.connection", "connection": SERVER})
    expect(button).to_have_attribute("data-grade", "good")
    expect(button).to_have_attribute("aria-label", "Connection: Good. Show details")
    button.focus()
    page.keyboard.press("Enter")
    expect(details).to_be_visible()
    expect(page.get_by_test_id("quality-loss_up")).to_have_text("1 %")
    expect(page.get_by_test_id("quality-round_trip")).to_have_text("20 ms")
    expect(page.get_by_test_id("quality-codec")).to_have_text("Opus")
    expect(page.get_by_test_id("quality-path")).to_have_text("relay – host")
    expect(page.get_by_test_id("quality-transport")).to_have_text("WebRTC, TCP")
    quality_of(page, stats(received=1000, lost=200))
    expect(button).to_have_attribute("data-grade", "poor")
    expect(page.get_by_test_id("quality-verdict")).to_contain_text("lost on the way")
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()
    expect(button).to_be_focused()
    page.get_by_test_id("hangup").click()
    expect(button).to_be_hidden()


@pytest.mark.parametrize("width", [360, 720, 1360])
def test_the_figures_stay_within_the_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    opened(page)
    say(page, {"type": "earshot.connection", "connection": SERVER})
    page.get_by_test_id("quality").click()
    box = page.get_by_test_id("quality-details").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
