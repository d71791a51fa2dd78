"""Phone calls, unplugged microphones, locked screens, refused playback, high contrast."""

from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser import Stub
from tests.web.page.calls import a_turn, is_in, opened, say
from tests.web.page.conftest import FAKE_CALL

pytestmark = pytest.mark.browser

FAKE_AUDIO = """
window.audioState = "running";
window.resumed = 0;
Object.defineProperty(AudioContext.prototype, "state", { get: () => window.audioState });
AudioContext.prototype.resume = async () => { window.resumed += 1; };
window.becomeAudio = (state) => {
  window.audioState = state;
  for (const one of window.contexts) one.dispatchEvent(new Event("statechange"));
};
window.contexts = [];
window.AudioContext = class extends AudioContext {
  constructor(...args) { super(...args); window.contexts.push(this); }
};
window.locks = [];
Object.defineProperty(navigator, "wakeLock", { value: { request: async (kind) => {
  const lock = new EventTarget();
  lock.release = async () => { lock.isReleased = true; lock.dispatchEvent(new Event("release")); };
  window.locks.push(Object.assign(lock, { kind }));
  return lock;
} } });
window.isHidden = false;
Object.defineProperty(document, "hidden", { get: () => window.isHidden });
window.hide = (isHidden) => {
  window.isHidden = isHidden;
  document.dispatchEvent(new Event("visibilitychange"));
};
"""
"An audio system, a screen and a page in sight that the test commands."

TRACK = """() => {
  const track = calls[0].tracks[0].clone();
  calls[0].dispatchEvent(Object.assign(new Event("track"), { track }));
}"""
"The server's voice comes."

MUTE = """(isMuted) => {
  const track = calls[0].tracks[0];
  Object.defineProperty(track, "muted", { value: isMuted, configurable: true });
  track.dispatchEvent(new Event(isMuted ? "mute" : "unmute"));
}"""


def test_the_page_recovers_after_a_phone_call(page: Page) -> None:
    page.add_init_script(FAKE_AUDIO)
    opened(page)
    message = page.get_by_test_id("message")
    # The system takes the microphone and the audio, as iOS does.
    page.evaluate(MUTE, True)
    expect(message).to_have_attribute("data-code", "mic_muted")
    is_in(page, "ready")  # not "listening": nothing is heard
    page.evaluate(MUTE, False)
    expect(message).to_be_hidden()
    is_in(page, "listening")
    page.evaluate("becomeAudio('interrupted')")
    expect(message).to_have_attribute("data-code", "autoplay")
    before = page.evaluate("resumed")
    page.evaluate("hide(true)")
    page.evaluate("hide(false)")
    assert page.evaluate("resumed") > before
    page.evaluate("becomeAudio('running')")
    expect(message).to_be_hidden()
    # The element is paused from outside: played again, once; then the user is asked.
    played = "() => !document.getElementById('voice').paused"
    page.evaluate(TRACK)
    page.wait_for_function(played)
    page.evaluate("document.getElementById('voice').pause()")
    page.wait_for_function(played)
    page.evaluate("document.getElementById('voice').pause()")
    expect(message).to_have_attribute("data-code", "autoplay")
    page.get_by_test_id("message-action").click()
    page.wait_for_function(played)
    expect(message).to_be_hidden()
    # A microphone that stays silent is asked for anew.
    page.evaluate(MUTE, True)
    page.get_by_test_id("message-action").click()
    is_in(page, "listening")
    assert page.evaluate("calls[0].tracks[0].readyState") == "ended"
    assert page.evaluate("calls[0].tracks.at(-1).readyState") == "live"


def test_the_screen_stays_on_while_talking_hands_free(page: Page) -> None:
    page.add_init_script(FAKE_AUDIO)
    opened(page)
    page.wait_for_function("() => locks.length === 1")
    assert page.evaluate("locks[0].kind") == "screen"
    page.evaluate("hide(true)")
    page.evaluate("locks[0].release()")  # as browsers do with hidden pages
    page.evaluate("hide(false)")
    page.wait_for_function("() => locks.length === 2")
    page.get_by_test_id("hangup").click()
    page.wait_for_function("() => locks[1].isReleased")


def test_an_unplugged_microphone_falls_back_to_the_next(page: Page) -> None:
    page.add_init_script(
        """const devices = navigator.mediaDevices;
        const plain = devices.getUserMedia.bind(devices);
        window.isPlugged = true;
        devices.getUserMedia = async (wanted) => {
          if (window.isPlugged) return plain(wanted);
          throw new DOMException("", "NotFoundError");
        };
        window.unplug = () => {
          const track = calls[0].tracks.at(-1);
          track.stop();
          track.dispatchEvent(new Event("ended"));
        };"""
    )
    opened(page)
    page.evaluate("unplug()")
    page.wait_for_function("() => calls[0].tracks.length > 1 && calls[0].tracks.at(-1).enabled")
    is_in(page, "listening")
    expect(page.get_by_test_id("message")).to_be_hidden()
    page.evaluate("window.isPlugged = false")
    page.evaluate("unplug()")
    message = page.get_by_test_id("message")
    expect(message).to_have_attribute("data-code", "no_microphone")
    is_in(page, "ready")
    page.evaluate("window.isPlugged = true")
    page.evaluate("navigator.mediaDevices.dispatchEvent(new Event('devicechange'))")
    is_in(page, "listening")
    expect(message).to_be_hidden()


def test_refused_playback_is_explained(page: Page) -> None:
    page.add_init_script(
        """HTMLMediaElement.prototype.play = async () => {
          throw new DOMException("no decoder", "NotSupportedError");
        };"""
    )
    page.goto("/")
    page.get_by_test_id("mic").click()
    is_in(page, "listening")
    page.evaluate(TRACK)
    expect(page.get_by_test_id("message")).to_contain_text("no decoder")


def test_leaving_the_page_releases_the_microphone(page: Page, stub: Stub) -> None:
    opened(page)
    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
    is_in(page, "off")
    assert page.evaluate("calls[0].tracks[0].readyState") == "ended"
    # Shown again from the browser's cache: what it shows is live.
    with page.expect_request("**/home/events*"):
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    assert stub.hung_up.get(timeout=30) == "rtc_1"


DRAWN = """(element) => {
  const style = getComputedStyle(element);
  const { backgroundColor, backgroundImage, borderTopWidth, borderTopColor } = style;
  const canvas = getComputedStyle(document.body).getPropertyValue("background-color");
  const paints = (colour) => colour !== canvas && colour !== "rgba(0, 0, 0, 0)";
  return backgroundImage !== "none" || paints(backgroundColor) ||
    (borderTopWidth !== "0px" && paints(borderTopColor));
}"""
"Whether an empty element paints anything that differs from what it lies on."


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_high_contrast_shows_states_and_bars(
    browser: Browser, stub: Stub, scheme: Literal["light", "dark"]
) -> None:
    stub.home.update("light.kitchen", "on")
    context = browser.new_context(
        base_url=stub.url, locale="en-GB", forced_colors="active", color_scheme=scheme
    )
    context.add_init_script(path=FAKE_CALL)
    page = context.new_page()
    opened(page)
    say(page, *a_turn(1, "hello", "Hello."))
    say(page, {"type": "earshot.connection", "connection": {"round_trip_ms": 20}})
    expect(page.get_by_test_id("quality")).to_be_visible()
    page.get_by_test_id("ptt").check(force=True)
    colour = "(element, name) => getComputedStyle(element)[name]"
    for shown in (
        ".lane .bar.asr",
        ".lane .bar.llm",
        ".lane .bar.endpoint_wait",
        ".lane .bar.playout",
        ".bars i",
        ".dot",
        ".modes .track",
        ".said",
        ".mic",
    ):
        assert page.locator(shown).first.evaluate(DRAWN), shown
    lamp, other = page.get_by_test_id("entity-light.kitchen"), page.locator(".entity").nth(1)
    for name in ("backgroundColor", "color"):
        assert lamp.evaluate(colour, name) != other.evaluate(colour, name)
    on, off = page.locator(".dot"), page.locator(".modes .track")
    is_on = on.evaluate(colour, "backgroundColor"), off.evaluate(colour, "backgroundColor")
    page.get_by_test_id("ptt").uncheck(force=True)
    page.get_by_test_id("hangup").click()
    is_in(page, "off")
    is_off = on.evaluate(colour, "backgroundColor"), off.evaluate(colour, "backgroundColor")
    assert all(a != b for a, b in zip(is_on, is_off, strict=True))
    context.close()


def test_scrollable_areas_have_a_name_and_keyboard_access(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 700})
    opened(page)
    said = page.get_by_role("region", name="What was said")
    expect(said).to_have_attribute("tabindex", "0")
    home = page.get_by_role("list", name="Home")
    expect(home).to_have_attribute("tabindex", "0")  # scrolls sideways on a phone
    page.set_viewport_size({"width": 1360, "height": 600})
    side = page.get_by_role("complementary", name="Home and figures")
    expect(side).to_have_attribute("tabindex", "0")
    expect(page.locator("#areas")).not_to_have_attribute("tabindex", "0")
    say(page, *a_turn(1, "hello", "Hello. " * 200))
    bottom = page.evaluate("document.getElementById('scroll').scrollTop")
    assert bottom > 0
    said.focus()
    page.keyboard.press("Home")
    page.wait_for_function("() => document.getElementById('scroll').scrollTop === 0")
