"""One call at a time: early failures, overlapping starts and stops, and what a lost call keeps."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.web.browser import Stub, serving
from tests.web.page.calls import a_turn, is_in, opened, say, sent
from tests.web.page.conftest import FAKE_CALL

pytestmark = pytest.mark.browser

CONNECTION = """
const { Connection } = await import("/static/call/connection.js");
const { Call } = await import("/static/call/call.js");
const track = new AudioContext().createMediaStreamDestination().stream.getAudioTracks()[0];
const told = [];
const connection = new Connection({
  describe: () => ({}), onEvent: () => {}, onTrack: () => {}, onStats: () => {},
  onState: (state) => told.push(state),
  onLost: (attempt) => {
    told.push(`lost ${attempt}`);
    if (attempt < 4) queueMicrotask(() => connection.hurry());
  },
  onGivenUp: (refused) => told.push(`given up ${refused.status}`),
});
const live = () => calls.filter((one) => one.connectionState !== "closed").length;
const codeOf = (promise) => promise.then(() => "open", (error) => error.code ?? error.name);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const until = async (isTrue) => {
  for (let left = 2_000; !isTrue(); left -= 1) {
    if (left === 0) throw new Error(`in vain: ${isTrue}, after ${told}`);
    await pause(2);
  }
};
const toFourth = () => until(() => told.includes("lost 4"));
calls.length = fates.length = 0;
"""
"A connection by itself, whose every change is kept; its first three further tries come at once."


@pytest.fixture(scope="module")
def stub_of_module() -> Iterator[Stub]:
    stub = Stub()
    with serving(stub):
        yield stub


@pytest.fixture(scope="module")
def tab(browser: Browser, stub_of_module: Stub) -> Iterator[Page]:
    """A tab of the same origin in which the page does not run."""
    page = browser.new_page()
    page.add_init_script(path=FAKE_CALL)
    page.goto(f"{stub_of_module.url}/static/icon.svg")
    yield page
    page.close()


def run(tab: Page, scene: str) -> Any:
    return tab.evaluate(f"async () => {{ {CONNECTION} {scene} }}")


def test_a_call_that_fails_early_is_reported_once(tab: Page) -> None:
    seen = run(
        tab,
        """fates.push("fails");
        const code = await codeOf(connection.open(track));
        await pause(400);  // longer than the first further try would wait
        return { code, told, dialled: calls.length, live: live() };""",
    )
    assert seen == {"code": "no_path", "told": ["connecting", "idle"], "dialled": 1, "live": 0}


def test_early_failures_do_not_multiply_the_attempts(tab: Page) -> None:
    seen = run(
        tab,
        """await connection.open(track);
        fates.push("fails", "fails", "fails");
        calls[0].drop();
        await toFourth();
        const before = calls.length;
        connection.close();
        await pause(50);
        return { told, before, after: calls.length, live: live() };""",
    )
    tries = [f"lost {attempt}" for attempt in (1, 2, 3, 4)]
    assert seen["told"] == ["connecting", "open", "reconnecting", *tries, "idle"]
    assert (seen["before"], seen["after"], seen["live"]) == (4, 4, 0)


def test_a_start_right_after_a_stop_is_a_new_call(tab: Page) -> None:
    seen = run(
        tab,
        """fates.push("hangs");
        const first = codeOf(connection.open(track));
        await until(() => calls[0]?.answer);
        connection.close();
        const second = codeOf(connection.open(track));
        return { first: await first, second: await second, told, live: live() };""",
    )
    assert (seen["first"], seen["second"], seen["live"]) == ("closed", "open", 1)
    assert seen["told"] == ["connecting", "idle", "connecting", "open"]


def test_a_microphone_chosen_while_connecting_is_used(tab: Page) -> None:
    seen = run(
        tab,
        """fates.push("hangs");
        const first = codeOf(connection.open(track));
        await until(() => calls[0]?.answer);
        const second = codeOf(connection.restart());
        return { first: await first, second: await second, live: live() };""",
    )
    assert seen == {"first": "closed", "second": "open", "live": 1}


def test_hanging_up_while_gathering_sends_no_offer(tab: Page, stub_of_module: Stub) -> None:
    before = len(stub_of_module.sessions)
    code = run(
        tab,
        """const plain = RTCPeerConnection.prototype.setLocalDescription;
        RTCPeerConnection.prototype.setLocalDescription = async function () {
          this.iceGatheringState = "gathering";
          await plain.call(this);
        };
        const first = codeOf(connection.open(track));
        await until(() => calls[0]?.localDescription);
        connection.close();
        RTCPeerConnection.prototype.setLocalDescription = plain;
        await pause(400);  // longer than gathering takes
        return first;""",
    )
    assert code == "closed"
    assert len(stub_of_module.sessions) == before


def test_hanging_up_cancels_a_pending_offer(tab: Page, stub_of_module: Stub) -> None:
    stub_of_module.is_stuck = True
    with tab.expect_event("requestfailed") as failed:
        code = run(
            tab,
            """let isAsked = false;
            const plain = window.fetch;
            window.fetch = (url, options) => {
              isAsked ||= url.pathname === "/v1/realtime/calls";
              return plain(url, options);
            };
            const first = codeOf(connection.open(track));
            await until(() => isAsked);
            connection.close();
            window.fetch = plain;
            return first;""",
        )
    stub_of_module.is_stuck = False
    assert code == "closed"
    assert failed.value.url == f"{stub_of_module.url}/v1/realtime/calls"


def test_a_track_changed_on_a_lost_call_is_sent_by_the_next_call(tab: Page) -> None:
    seen = run(
        tab,
        """await connection.open(track);
        fates.push("fails", "fails");
        calls[0].drop();
        const other = new AudioContext().createMediaStreamDestination().stream.getAudioTracks()[0];
        const code = await codeOf(connection.replaceTrack(other));
        await until(() => connection.state === "open");
        return { code, isSent: calls.at(-1).tracks.at(-1) === other };""",
    )
    assert seen == {"code": "open", "isSent": True}


def test_a_click_while_reconnecting_retries_at_once(tab: Page) -> None:
    seen = run(
        tab,
        """await connection.open(track);
        fates.push("fails", "fails", "fails", "fails");
        calls[0].drop();
        await toFourth();
        const failed = await codeOf(connection.open(track));  // the fourth try, at once
        const state = connection.state;
        const opened = await codeOf(connection.open(track));
        return { failed, state, opened, live: live() };""",
    )
    assert seen == {"failed": "still_lost", "state": "reconnecting", "opened": "open", "live": 1}


def test_a_permanent_refusal_ends_the_attempts(tab: Page) -> None:
    seen = run(
        tab,
        """await connection.open(track);
        const plain = window.fetch;
        window.fetch = async (url, options) => {
          if (url.pathname !== "/v1/realtime/calls") return plain(url, options);
          return new Response("{}", { status: 403 });
        };
        calls[0].drop();
        await until(() => connection.state === "idle");
        window.fetch = plain;
        return told.at(-1);""",
    )
    assert seen == "given up 403"


def test_a_double_click_leaves_no_microphone_open(page: Page) -> None:
    page.add_init_script(
        """window.streams = [];
        const devices = navigator.mediaDevices;
        const plain = devices.getUserMedia.bind(devices);
        devices.getUserMedia = async (wanted) => {
          await new Promise((resolve) => setTimeout(resolve, 300));  // the browser asks the user
          const stream = await plain(wanted);
          window.streams.push(stream);
          return stream;
        };"""
    )
    page.goto("/")
    page.get_by_test_id("mic").dblclick()
    is_in(page, "listening")
    assert page.evaluate("streams.length") == 1
    page.get_by_test_id("hangup").click()
    is_in(page, "off")
    live = "streams.filter((one) => one.getTracks().some((t) => t.readyState === 'live')).length"
    assert page.evaluate(live) == 0
    # Stopped while the browser still asks: what it gives then is given back.
    page.get_by_test_id("mic").click()
    page.evaluate("dispatchEvent(new Event('pagehide'))")
    page.wait_for_function("() => streams.length === 2")
    page.wait_for_function(f"() => {live} === 0")


def test_typing_while_reconnecting_keeps_text_microphone_and_attempts(
    page: Page, stub: Stub
) -> None:
    opened(page)
    stub.status = 500
    page.evaluate("calls[0].drop()")
    is_in(page, "reconnecting")
    field = page.get_by_test_id("text-input")
    field.fill("are you there")
    page.keyboard.press("Enter")
    expect(field).to_have_value("are you there")  # given back: the try failed
    is_in(page, "reconnecting")
    assert page.evaluate("calls[0].tracks[0].readyState") == "live"
    stub.status = 201
    is_in(page, "listening")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-sent", "2")
    assert sent(page)[0]["item"]["content"][0]["text"] == "are you there"


def test_a_quick_second_press_loses_no_sentence(page: Page) -> None:
    page.goto("/")
    page.get_by_test_id("ptt").check(force=True)
    page.get_by_test_id("hint").click()
    page.keyboard.down("Space")
    is_in(page, "listening")
    page.evaluate(
        """() => {
          const options = { code: "Space", bubbles: true };
          const key = (type) => document.body.dispatchEvent(new KeyboardEvent(type, options));
          key("keyup");
          key("keydown");
        }"""
    )
    expect(page.locator("html")).to_have_attribute("data-sent", "3")
    page.keyboard.up("Space")
    expect(page.locator("html")).to_have_attribute("data-sent", "5")
    assert [event["type"].split(".")[-1] for event in sent(page)] == [
        "clear",
        "commit",
        "clear",
        "commit",
        "create",
    ]


def test_a_released_space_bar_is_noticed_anywhere_and_shortcuts_do_not_talk(page: Page) -> None:
    page.goto("/")
    page.get_by_test_id("ptt").check(force=True)
    page.get_by_test_id("hint").click()
    for shortcut in ("Control+Space", "Alt+Space", "Meta+Space"):
        page.keyboard.press(shortcut)
    is_in(page, "off")
    page.keyboard.down("Space")
    is_in(page, "listening")
    page.get_by_test_id("text-input").focus()
    page.keyboard.up("Space")
    is_in(page, "ready")
    expect(page.get_by_test_id("mic")).to_have_attribute("aria-pressed", "false")


def test_forbidden_storage_only_loses_the_saved_choices(page: Page, stub: Stub) -> None:
    stub.key = "s3cret"
    for area in ("sessionStorage", "localStorage"):
        page.add_init_script(
            f"""Object.defineProperty(window, "{area}", {{
              get() {{ throw new DOMException("forbidden", "SecurityError"); }} }});"""
        )
    page.goto("/#key=s3cret")
    expect(page.get_by_test_id("entity-light.kitchen")).to_be_visible()
    page.get_by_test_id("mic").click()
    is_in(page, "listening")
    say(page, *a_turn(1, "hello", "Hello."))
    expect(page.get_by_test_id("turn")).to_have_count(1)


def test_a_reload_restores_the_conversation(
    context: BrowserContext, page: Page, stub: Stub
) -> None:
    opened(page)
    say(page, *a_turn(1, "hello", "Hello."))
    expect(page.get_by_test_id("turn")).to_have_count(1)
    page.reload()
    expect(page.get_by_test_id("reply")).to_contain_text("Hello.")
    expect(page.get_by_test_id("announcer")).to_be_empty()  # it was read out before
    page.get_by_test_id("mic").click()
    is_in(page, "listening")
    assert stub.sessions[-1]["earshot"] == {"conversation_id": "conv_7"}
    say(page, *a_turn(2, "more", "More."))
    expect(page.get_by_test_id("announcer")).to_contain_text("More.")
    # A duplicated tab has a copy of the first one's storage.
    copied = page.evaluate("sessionStorage.getItem('earshot.conversation')")
    twin = context.new_page()
    twin.add_init_script(
        f"sessionStorage.setItem('earshot.conversation', JSON.stringify({copied}))"
    )
    twin.goto("/")
    expect(twin.get_by_test_id("turn")).to_have_count(0)
    twin.get_by_test_id("mic").click()
    is_in(twin, "listening")
    assert stub.sessions[-1]["earshot"]["conversation_id"].startswith("page_")
    expect(page.get_by_test_id("turn")).to_have_count(2)
