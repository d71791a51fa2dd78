"""The buttons and keys of a conversation: stop the answer, mute, volume."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.page.calls import created, is_in, opened, said, say, sent, spoken

pytestmark = pytest.mark.browser


def _answering(page: Page) -> None:
    playing = {"type": "output_audio_buffer.started", "response_id": "r"}
    say(page, *spoken("i", "tell me a story"), created("r"), said("r", "Once"), playing)
    is_in(page, "speaking")


def _types(page: Page) -> list[str]:
    return [event["type"] for event in sent(page)]


def _hears(page: Page) -> bool:
    is_enabled: bool = page.evaluate("calls.at(-1).tracks.at(-1).enabled")
    return is_enabled


def test_the_stop_button_shows_during_an_answer_and_cancels_it(page: Page) -> None:
    opened(page)
    stop = page.get_by_test_id("stop-answer")
    expect(stop).to_be_hidden()
    _answering(page)
    stop.click()
    assert _types(page)[-2:] == ["response.cancel", "output_audio_buffer.clear"]
    say(page, {"type": "output_audio_buffer.cleared", "response_id": "r"})
    expect(stop).to_be_hidden()
    expect(page.get_by_test_id("turn")).to_have_attribute("data-status", "cut")


def test_escape_stops_the_answer_also_from_the_text_field(page: Page) -> None:
    opened(page)
    page.keyboard.press("Escape")
    assert "response.cancel" not in _types(page)
    _answering(page)
    page.get_by_test_id("text-input").press("Escape")
    assert _types(page)[-2:] == ["response.cancel", "output_audio_buffer.clear"]


def test_the_microphone_is_muted_by_button_and_by_key(page: Page) -> None:
    opened(page)
    mute = page.get_by_test_id("mute")
    mute.click()
    is_in(page, "muted")
    expect(mute).to_have_attribute("aria-pressed", "true")
    assert not _hears(page)
    page.keyboard.press("m")
    is_in(page, "listening")
    assert _hears(page)
    page.get_by_test_id("text-input").press_sequentially("m")
    is_in(page, "listening")


def test_a_new_call_is_not_muted(page: Page) -> None:
    opened(page)
    page.get_by_test_id("mute").click()
    page.get_by_test_id("hangup").click()
    is_in(page, "off")
    expect(page.get_by_test_id("mute")).to_be_hidden()
    page.get_by_test_id("mic").click()
    is_in(page, "listening")
    assert _hears(page)


def test_push_to_talk_needs_no_mute(page: Page) -> None:
    opened(page)
    page.get_by_test_id("mute").click()
    page.get_by_test_id("ptt").check(force=True)
    expect(page.get_by_test_id("mute")).to_be_hidden()
    page.get_by_test_id("ptt").uncheck(force=True)
    is_in(page, "listening")
    assert _hears(page)


def test_the_volume_of_the_voice_is_kept(page: Page) -> None:
    opened(page)
    volume = "document.getElementById('voice').volume"
    assert page.evaluate(volume) == 1
    page.get_by_test_id("volume").fill("40")
    page.wait_for_function(f"{volume} === 0.4")
    assert "session.update" not in _types(page)
    page.reload()
    expect(page.get_by_test_id("volume")).to_have_value("40")
    assert page.evaluate(volume) == pytest.approx(0.4)
