"""The page in a browser: what it shows, sends and survives, against a scripted server."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from pipeline.tools.home.state import TimerState
from tests.web.browser import Stub
from tests.web.page.calls import (
    STAGES,
    a_turn,
    answer,
    done,
    is_in,
    opened,
    say,
    sent,
)
from tests.web.page.conftest import FAKE_CALL

pytestmark = pytest.mark.browser

OUR_EVENTS = [
    "earshot.hypothesis",
    "earshot.turn",
    "earshot.connection",
    "earshot.wake",
    "earshot.tool",
]


def test_the_home_is_live_before_any_call(page: Page, stub: Stub) -> None:
    page.goto("/")
    lamp = page.get_by_test_id("entity-light.kitchen")
    expect(lamp).to_have_attribute("data-state", "off")
    stub.soon(lambda: stub.home.update("light.kitchen", "on"))
    expect(lamp).to_have_attribute("data-state", "on")
    expect(page.get_by_test_id("area-kitchen")).to_have_attribute("data-lit", "true")
    assert stub.sessions == []


def test_an_unreachable_home_assistant_is_shown(page: Page, stub: Stub) -> None:
    page.goto("/")
    state, areas = page.locator("#home-state"), page.locator("#areas")
    expect(state).to_have_text("live")
    stub.soon(lambda: stub.home.show_reach("away"))
    expect(state).to_contain_text("Home Assistant cannot be reached")
    expect(state).to_have_attribute("data-live", "false")
    expect(areas).to_have_class(re.compile(r"\bold\b"))
    stub.soon(lambda: stub.home.show_reach("here"))
    expect(state).to_have_text("live")
    expect(areas).not_to_have_class(re.compile(r"\bold\b"))


def test_timers_count_down_and_ring(page: Page, stub: Stub) -> None:
    timers = [TimerState("t1", "tea", "conv_1", 60, 42, "running")]
    stub.home.show_timers(lambda: timers)
    page.goto("/")
    timer = page.get_by_test_id("timer")
    expect(timer).to_contain_text("tea")
    expect(timer).to_contain_text(re.compile(r"0:4[0-2]"))
    timers[:] = [TimerState("t1", "tea", "conv_1", 60, 0, "ringing")]
    stub.soon(stub.home.touch)
    expect(timer).to_have_attribute("data-state", "ringing")
    expect(timer).to_contain_text("Time is up")
    page.evaluate(
        """() => {
          const alert = document.querySelector("[data-testid=timer] [role=alert]");
          const note = () => { window.isReadAgain = true; };
          new MutationObserver(note).observe(alert.parentElement.parentElement,
            { childList: true, characterData: true, subtree: true });
        }"""
    )
    stub.soon(lambda: stub.home.update("light.kitchen", "on"))  # while it rings
    expect(page.get_by_test_id("entity-light.kitchen")).to_have_attribute("data-state", "on")
    assert not page.evaluate("window.isReadAgain === true")


def test_a_finished_timer_stays_visible_for_a_while(page: Page, stub: Stub) -> None:
    timers = [
        TimerState("t1", "tea", "conv_1", 10, 0.2, "running"),
        TimerState("t2", "rice", "conv_1", 600, 500, "running"),
    ]
    stub.home.show_timers(lambda: timers)
    page.clock.install()
    page.goto("/")
    expect(page.get_by_test_id("timer")).to_have_count(2)
    timers.clear()
    stub.soon(stub.home.touch)
    timer = page.get_by_test_id("timer")  # the other one was cancelled
    expect(timer).to_have_count(1)
    expect(timer).to_have_attribute("data-state", "ringing")
    expect(timer).to_contain_text("tea")
    stub.soon(stub.home.touch)  # it does not ring anew with each change of the home
    page.clock.fast_forward(9_000)
    expect(timer).to_have_count(0)


def test_the_shopping_list_is_shown(page: Page, stub: Stub) -> None:
    stub.home.add_item("milk")
    stub.home.add_item("<b>eggs</b>")
    stub.home.complete_item("milk")
    page.goto("/")
    items = page.get_by_test_id("shopping-item")
    expect(items).to_have_count(2)
    expect(items.nth(0)).to_have_attribute("data-done", "true")
    expect(items.nth(1)).to_have_text("<b>eggs</b>")


def test_a_whole_turn_is_shown(page: Page, stub: Stub) -> None:
    opened(page)
    assert stub.sessions[0]["include"] == OUR_EVENTS
    assert stub.sessions[0]["audio"]["input"]["turn_detection"] == {"type": "semantic_vad"}
    events = a_turn(1, "turn on the kitchen lights", "Turned on the kitchen lights.")
    words = {"stable": "turn on", "unstable": "the kitchen"}
    say(page, events[0], {"type": "earshot.hypothesis", "item_id": "item_1", **words})
    expect(page.get_by_test_id("live-stable")).to_have_text("turn on")
    expect(page.get_by_test_id("live-unstable")).to_have_text("the kitchen")
    looks = "(e) => getComputedStyle(e).fontStyle + getComputedStyle(e).textDecorationLine"
    assert page.get_by_test_id("live-stable").evaluate(looks) == "normalnone"
    assert page.get_by_test_id("live-unstable").evaluate(looks) == "italicunderline"
    say(page, *events[1:5])
    is_in(page, "thinking")
    expect(page.get_by_test_id("transcript")).to_be_hidden()
    say(page, *events[5:8])
    is_in(page, "speaking")
    say(page, *events[8:])
    is_in(page, "listening")
    turn = page.get_by_test_id("turn")
    expect(turn.get_by_test_id("said")).to_contain_text("turn on the kitchen lights")
    expect(turn.get_by_test_id("reply")).to_contain_text("Turned on the kitchen lights.")
    for name, start, end in STAGES:
        row = turn.get_by_test_id(f"stage-{name}")
        expect(row).to_be_visible()
        expect(row).to_have_attribute("data-ms", f"{end - start:.1f}")
    expect(page.get_by_test_id("announcer")).to_contain_text("Turned on the kitchen lights.")


def test_hovering_and_focus_show_milliseconds(page: Page) -> None:
    opened(page)
    say(page, *a_turn(1, "hello", "Hello."))
    row = page.get_by_test_id("stage-asr")
    tip = row.locator(".tip")
    expect(tip).to_have_css("opacity", "0")
    row.hover()
    expect(tip).to_have_css("opacity", "1")
    expect(tip).to_have_text("Recognition: 80 ms to 430 ms, took 350 ms")
    page.mouse.move(0, 0)
    expect(tip).to_have_css("opacity", "0")
    page.keyboard.press("Tab")
    row.focus()
    expect(tip).to_have_css("opacity", "1")


def test_speculative_work_is_marked(page: Page) -> None:
    opened(page)
    events = a_turn(1, "hello", "Hello.")
    (trace,) = [event["turn"] for event in events if event["type"] == "earshot.turn"]
    for stage in trace["stages"]:
        stage["is_speculative"] = stage["stage"] in ("asr", "llm")
    say(page, *events)
    for name, is_ahead in (("asr", "true"), ("llm", "true"), ("playout", "false")):
        expect(page.get_by_test_id(f"stage-{name}")).to_have_attribute("data-ahead", is_ahead)
    expect(page.get_by_test_id("ahead-note")).to_contain_text("begun early")
    page.get_by_test_id("stage-asr").hover()
    expect(page.get_by_test_id("stage-asr").locator(".tip")).to_contain_text("begun early")


def test_medians_include_every_turn_of_the_session(page: Page) -> None:
    opened(page)
    say(page, *a_turn(1, "one", "One."), *a_turn(2, "two", "Two."))
    expect(page.get_by_test_id("median-latency")).to_contain_text("470 ms")
    expect(page.get_by_test_id("p95-latency")).to_have_text("p95 470 ms")
    expect(page.get_by_test_id("ahead-note")).to_have_count(0)
    expect(page.get_by_test_id("median-asr")).to_contain_text("350 ms")
    expect(page.get_by_test_id("waterfall")).to_have_count(2)
    expect(page.get_by_test_id("stage-asr").nth(0)).to_be_hidden()
    expect(page.get_by_test_id("stage-asr").nth(1)).to_be_visible()


def test_an_interrupted_answer_is_shown_cut(page: Page) -> None:
    opened(page)
    events = a_turn(1, "tell me a story", "It is a long story.")
    cut = [answer("resp_1", "It is", "incomplete"), done("resp_1", "cancelled")]
    say(page, *events[:8], *cut)
    expect(page.get_by_test_id("heard")).to_have_text("It is")
    expect(page.get_by_test_id("unheard")).to_have_text("a long story.")
    expect(page.get_by_test_id("cut")).to_have_text("interrupted")


def test_typing_needs_no_microphone(page: Page, stub: Stub) -> None:
    page.add_init_script("Object.defineProperty(navigator, 'mediaDevices', { value: undefined })")
    page.goto("/")
    page.get_by_test_id("text-input").fill("what time is it")
    page.keyboard.press("Enter")
    is_in(page, "ready")
    content = [{"type": "input_text", "text": "what time is it"}]
    item = {"type": "message", "role": "user", "content": content}
    assert sent(page) == [
        {"type": "conversation.item.create", "item": item},
        {"type": "response.create"},
    ]
    assert page.evaluate("calls[0].tracks[0].kind") == "audio"
    expect(page.get_by_test_id("message")).to_be_hidden()


def test_typing_during_an_answer_stops_it_first(page: Page) -> None:
    opened(page)
    say(page, *a_turn(1, "tell me a story", "It is a long story.")[:8])
    is_in(page, "speaking")
    page.get_by_test_id("text-input").fill("stop")
    page.get_by_test_id("send").click()
    assert [event["type"] for event in sent(page)] == [
        "response.cancel",
        "output_audio_buffer.clear",
        "conversation.item.create",
        "response.create",
    ]


def test_a_suggestion_is_sent_as_text(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="What time is it?").click()
    is_in(page, "ready")
    assert sent(page)[0]["item"]["content"][0]["text"] == "What time is it?"


@pytest.mark.parametrize("by", ["mouse", "space"])
def test_push_to_talk_sends_speech_while_pressed(page: Page, stub: Stub, by: str) -> None:
    page.goto("/")
    page.get_by_test_id("ptt").check(force=True)
    page.get_by_test_id("hint").click()  # away from the switch, which has the space bar itself
    if by == "mouse":
        page.get_by_test_id("mic").hover()
        page.mouse.down()
    else:
        page.keyboard.down("Space")
    is_in(page, "listening")
    assert stub.sessions[0]["audio"]["input"]["turn_detection"] is None
    expect(page.get_by_test_id("mic")).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("calls[0].tracks[0].enabled")
    if by == "mouse":
        page.mouse.up()
    else:
        page.keyboard.up("Space")
    is_in(page, "ready")
    expect(page.locator("html")).to_have_attribute("data-sent", "3")
    types = [event["type"] for event in sent(page)]
    assert types == ["input_audio_buffer.clear", "input_audio_buffer.commit", "response.create"]
    assert not page.evaluate("calls[0].tracks[0].enabled")


def test_speech_between_presses_is_not_shown(page: Page) -> None:
    page.goto("/")
    page.get_by_test_id("ptt").check(force=True)
    page.get_by_test_id("text-input").fill("hello")
    page.keyboard.press("Enter")
    is_in(page, "ready")
    words = {"stable": "secret", "unstable": ""}
    say(page, {"type": "earshot.hypothesis", "item_id": "x", **words})
    expect(page.get_by_test_id("transcript")).to_be_hidden()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("NotAllowedError", "denied"),
        ("NotFoundError", "no_microphone"),
        ("NotReadableError", "busy"),
        (None, "insecure"),
    ],
)
def test_no_microphone_is_explained(page: Page, stub: Stub, error: str | None, code: str) -> None:
    reject = f"{{ getUserMedia: async () => {{ throw new DOMException('', '{error}'); }} }}"
    value = reject if error else "undefined"
    page.add_init_script(f"Object.defineProperty(navigator, 'mediaDevices', {{ value: {value} }})")
    page.goto("/")
    page.get_by_test_id("mic").click()
    message = page.get_by_test_id("message")
    expect(message).to_have_attribute("data-code", code)
    expect(message).to_have_attribute("role", "alert")
    assert "--tls auto" in message.inner_text() or code != "insecure"
    is_in(page, "off")
    assert stub.sessions == []


def test_a_full_server_says_when_to_come_back(page: Page, stub: Stub) -> None:
    stub.status, stub.headers = 503, {"Retry-After": "2"}
    page.goto("/")
    page.get_by_test_id("mic").click()
    message = page.get_by_test_id("message")
    expect(message).to_contain_text("2 seconds")
    expect(message).to_contain_text("You can try again now")
    stub.status = 201
    page.get_by_test_id("message-action").click()
    is_in(page, "listening")
    expect(message).to_be_hidden()


def test_a_reconnection_continues_the_same_conversation(page: Page, stub: Stub) -> None:
    opened(page)
    say(page, *a_turn(1, "hello", "Hello."))
    stub.status = 500
    page.evaluate("calls[0].drop()")
    is_in(page, "reconnecting")
    expect(page.get_by_test_id("message")).to_have_attribute("data-code", "lost")
    stub.status = 201
    is_in(page, "listening")
    expect(page.get_by_test_id("message")).to_be_hidden()
    expect(page.get_by_test_id("turn")).to_have_count(1)
    assert stub.sessions[-1]["earshot"] == {"conversation_id": "conv_7"}


def test_an_idle_session_is_not_called_again(page: Page, stub: Stub) -> None:
    opened(page)
    say(page, {"type": "error", "error": {"code": "session_idle", "message": "idle"}})
    is_in(page, "off")
    expect(page.get_by_test_id("message")).to_have_attribute("data-code", "idle")
    assert len(stub.sessions) == 1


def test_ending_the_call_and_leaving_the_page_hang_up(page: Page, stub: Stub) -> None:
    opened(page)
    page.get_by_test_id("hangup").click()
    is_in(page, "off")
    page.get_by_test_id("mic").click()
    is_in(page, "listening")
    page.goto("about:blank")
    assert [stub.hung_up.get(timeout=30) for _ in range(2)] == ["rtc_1", "rtc_2"]


def test_the_key_is_removed_from_the_address_bar_and_kept(page: Page, stub: Stub) -> None:
    stub.key = "s3cret"
    page.goto("/#key=s3cret")
    expect(page.get_by_test_id("entity-light.kitchen")).to_be_visible()
    assert "s3cret" not in page.url
    page.reload()
    page.get_by_test_id("mic").click()
    is_in(page, "listening")


def test_a_missing_key_is_asked_for(page: Page, stub: Stub) -> None:
    stub.key = "s3cret"
    page.goto("/")
    expect(page.get_by_test_id("message")).to_have_attribute("data-code", "key")
    page.get_by_test_id("key-input").fill("s3cret")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("entity-light.kitchen")).to_be_visible()
    expect(page.get_by_test_id("message")).to_be_hidden()


def test_the_spoken_language_changes_the_session_and_the_page_stays(page: Page, stub: Stub) -> None:
    opened(page)
    page.get_by_test_id("language").select_option("de")
    expect(page.get_by_test_id("area-kitchen")).to_contain_text("Küche")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    update = sent(page)[-1]
    assert update["type"] == "session.update"
    assert update["session"]["audio"]["input"]["transcription"]["language"] == "de"
    # The recogniser hears English only: the microphone is taken back, writing stays.
    expect(page.get_by_test_id("mic")).to_have_attribute("aria-disabled", "true")
    hint = page.get_by_test_id("hint")
    expect(hint).to_contain_text("hears English")
    expect(hint).to_contain_text("fetch one")
    page.get_by_test_id("page-language").select_option("de")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(hint).to_contain_text("versteht Englisch")
    assert sent(page)[-1] == update, "the session does not depend on the page's language"
    page.get_by_test_id("text-input").fill("wie spät ist es")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-state", "ready")
    assert sent(page)[-1] == {"type": "response.create"}


def test_the_first_click_works_in_any_browser_language(browser: Browser, stub: Stub) -> None:
    context = browser.new_context(base_url=stub.url, locale="fr-FR")
    context.add_init_script(path=FAKE_CALL)
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_test_id("language")).to_have_value("en")  # all that the recogniser hears
    expect(page.locator("html")).to_have_attribute("lang", "fr")
    expect(page.locator("#suggestions li").first).to_have_text("Turn on the kitchen lights")
    page.get_by_test_id("mic").click()
    is_in(page, "listening")
    page.get_by_test_id("language").select_option("fr")
    page.reload()
    expect(page.get_by_test_id("language")).to_have_value("fr")
    context.close()


@pytest.mark.parametrize(
    ("locale", "language"), [("zh-CN", "zh"), ("pt-BR", "pt"), ("nl-BE", "nl"), ("sv-SE", "en")]
)
def test_the_page_is_shown_in_the_browsers_language(
    browser: Browser, stub: Stub, locale: str, language: str
) -> None:
    context = browser.new_context(base_url=stub.url, locale=locale)
    page = context.new_page()
    page.goto("/")
    expect(page.locator("html")).to_have_attribute("lang", language)
    page.get_by_test_id("page-language").select_option("it")
    expect(page.locator("html")).to_have_attribute("lang", "it")
    page.reload()
    expect(page.locator("html")).to_have_attribute("lang", "it")
    page.get_by_test_id("page-language").select_option("")
    expect(page.locator("html")).to_have_attribute("lang", language)
    context.close()


def test_choices_are_remembered(context: BrowserContext, page: Page) -> None:
    page.goto("/")
    page.get_by_test_id("language").select_option("fr")
    page.get_by_test_id("theme").click()
    theme = page.locator("html").get_attribute("data-theme")
    again = context.new_page()
    again.goto("/")
    expect(again.get_by_test_id("language")).to_have_value("fr")
    expect(again.locator("html")).to_have_attribute("data-theme", str(theme))


def every_word(page: Page) -> dict[str, dict[str, Any]]:
    """Texts of the page by language and key."""
    words: dict[str, dict[str, Any]] = page.evaluate(
        "import('/static/words/translate.js').then(({ WORDS }) => WORDS)"
    )
    return words


def test_every_language_has_every_text(page: Page) -> None:
    page.goto("/")
    words = every_word(page)
    assert set(words) == {"en", "de", "fr", "es", "it", "nl", "pt", "zh"}
    for language, sentences in words.items():
        assert set(sentences) == set(words["en"]), language
        for key, sentence in sentences.items():
            blanks = re.findall(r"\{\w+\}", str(sentence))
            assert sorted(blanks) == sorted(re.findall(r"\{\w+\}", str(words["en"][key]))), key
    for language in set(words) - {"en"}:
        same = {key for key, text in words[language].items() if text == words["en"][key]}
        assert len(same) < 30, f"{language} has English sentences: {sorted(same)}"
        assert not [key for key in same if len(str(words["en"][key])) > 20], language


def test_every_control_has_an_accessible_name(page: Page) -> None:
    opened(page)
    say(page, *a_turn(1, "hello", "Hello."))
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, summary")]
        .filter((e) => e.checkVisibility() && !(e.getAttribute("aria-label") ||
          e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize("width", [360, 390, 720, 1024, 1280, 1580])
def test_nothing_overflows_a_narrow_screen(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    opened(page)
    # A server may offer every choice and view: the header then has all of its buttons.
    page.evaluate(
        "for (const one of document.querySelectorAll('.top [hidden]')) one.hidden = false"
    )
    say(page, *a_turn(1, "turn on " + "every " * 40 + "light", "Done" + "o" * 120))
    expect(page.get_by_test_id("turn")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    header = page.get_by_role("banner").bounding_box()
    assert header is not None
    assert header["height"] < 4 * 32 or width >= 720  # three low rows at most on a phone
    expect(page.get_by_test_id("mic")).to_be_in_viewport()


CUT_WORDS = """([states, grades]) => {
  const state = document.getElementById("connection-text");
  const grade = document.getElementById("quality-grade");
  grade.parentElement.hidden = false; // these calls have no figures
  const isCut = (element) => {
    const { right, height } = element.getBoundingClientRect();
    return element.scrollWidth > element.clientWidth || right > innerWidth || height > 30;
  };
  return states.flatMap((word) => grades.map((other) => {
    [state.textContent, grade.textContent] = [word, other];
    const shown = [state.parentElement, grade.parentElement];
    return shown.some(isCut) ? `${word}, ${other}` : "";
  })).filter(Boolean);
}"""
"Words of the connection and its quality -> those that are cut, or wrapped into a second line."


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_shows_the_whole_word_of_the_connection(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    opened(page)
    for language, words in every_word(page).items():
        page.get_by_test_id("page-language").select_option(language)
        expect(page.get_by_test_id("connection")).to_have_text(words["connection_open"])
        states = [
            words[f"connection_{state}"] for state in ("off", "connecting", "open", "reconnecting")
        ]
        grades = [words[f"q_{grade}"] for grade in ("good", "fair", "poor")]
        assert page.evaluate(CUT_WORDS, [states, grades]) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width, language
