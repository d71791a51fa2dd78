"""The main job as a whole: speech to the page in a real browser, and the real server's answer."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.audio import silence
from media.files.decode import decode_file
from tests.e2e.recorded_microphone import RATE_HZ, energy, joined, talking, write_clip
from tests.server.process import Running, serving
from tests.shared import shared_data
from tests.speech import say
from tests.web.browser import chromium

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("talkers")]

LEAD_MS = 1000
"From the click to the first word: a person breathes in, the call connects."
TAIL_MS = 20_000
STAGES = ("endpoint_wait", "asr", "llm", "tts", "playout")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server as `make run` starts it, with the engines that need no download."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, recogniser={}) as running:
        yield running


def is_in(page: Page, state: str, timeout_ms: float = 15_000) -> None:
    expect(page.locator("html")).to_have_attribute("data-state", state, timeout=timeout_ms)


@pytest.mark.alone  # words have to appear while they are spoken
def test_a_spoken_command_turns_on_a_light(server: Running, tmp_path: Path) -> None:
    words = say("turn on the kitchen lights", rate_hz=RATE_HZ, lead_ms=LEAD_MS, tail_ms=TAIL_MS)
    with talking(write_clip(tmp_path / "mic.wav", words), server.url) as page:
        lamp = page.get_by_test_id("entity-light.kitchen")
        expect(lamp).to_have_attribute("data-state", "off")
        page.get_by_test_id("mic").click()
        is_in(page, "listening")
        expect(page.get_by_test_id("live-stable")).to_contain_text("turn on")
        before = energy(page)
        turn = page.get_by_test_id("turn").first
        expect(turn.get_by_test_id("said")).to_contain_text(
            re.compile("turn on the kitchen lights?")
        )
        expect(turn.get_by_test_id("reply")).to_contain_text(
            re.compile("Turned on the kitchen lights?")
        )
        expect(lamp).to_have_attribute("data-state", "on")
        is_in(page, "speaking")
        is_in(page, "listening")
        assert energy(page) > before + 1e-4
        for stage in STAGES:
            bar = turn.get_by_test_id(f"stage-{stage}").first
            expect(bar).to_be_visible()
            assert float(bar.get_attribute("data-ms") or "nan") >= 0
        expect(turn.get_by_test_id("latency")).to_contain_text(re.compile(r"\d+ ms"))


@pytest.mark.real
def test_a_timer_rings_with_a_spoken_sentence(server: Running, tmp_path: Path) -> None:
    words = say("set a timer for ten seconds", rate_hz=RATE_HZ, lead_ms=LEAD_MS, tail_ms=TAIL_MS)
    with talking(write_clip(tmp_path / "mic.wav", words), server.url) as page:
        page.get_by_test_id("mic").click()
        first = page.get_by_test_id("turn").first
        expect(first.get_by_test_id("reply")).to_contain_text("10 seconds", timeout=15_000)
        expect(page.get_by_test_id("timer")).to_be_visible()
        is_in(page, "listening")
        before = energy(page)
        is_in(page, "speaking")  # nobody asked: it rings
        rung = page.get_by_test_id("turn").nth(1)
        expect(rung.get_by_test_id("reply")).to_contain_text("timer")
        is_in(page, "listening")
        assert energy(page) > before + 1e-4


@pytest.mark.alone  # the speech has to be noticed before the answer is over
def test_a_barge_in_stops_the_answer(server: Running, tmp_path: Path) -> None:
    words = joined(
        say("what can you do", rate_hz=RATE_HZ, lead_ms=LEAD_MS, tail_ms=3000),
        say("turn off the kitchen lights", rate_hz=RATE_HZ, tail_ms=TAIL_MS),
    )
    with talking(write_clip(tmp_path / "mic.wav", words), server.url) as page:
        page.get_by_test_id("mic").click()
        first = page.get_by_test_id("turn").first
        expect(first).to_have_attribute("data-status", "cut", timeout=20_000)
        expect(first.get_by_test_id("cut")).to_be_visible()
        heard = first.get_by_test_id("reply").inner_text()
        assert "I can switch lights" in heard
        assert "tell the time" not in heard  # the end of the answer, which nobody heard
        second = page.get_by_test_id("turn").nth(1)
        expect(second.get_by_test_id("said")).to_contain_text(
            re.compile("turn off the kitchen lights?")
        )
        expect(second.get_by_test_id("reply")).to_contain_text(re.compile("kitchen lights?"))


@pytest.mark.real
def test_a_recorded_human_voice_is_understood(server: Running, tmp_path: Path) -> None:
    pcm = decode_file(shared_data("speech", "en", "ha_turn_on_lamp.wav"), RATE_HZ)
    words = joined(silence(LEAD_MS, RATE_HZ), pcm, silence(TAIL_MS, RATE_HZ))
    with talking(write_clip(tmp_path / "mic.wav", words), server.url) as page:
        lamp = page.get_by_test_id("entity-light.living_room_lamp")
        page.get_by_test_id("mic").click()
        turn = page.get_by_test_id("turn").first
        expect(turn.get_by_test_id("said")).to_contain_text("turn on the living room lamp")
        expect(lamp).to_have_attribute("data-state", "on")


def test_a_refused_microphone_is_explained(server: Running) -> None:
    with chromium("--deny-permission-prompts", is_allowed=False) as browser:
        page = browser.new_page(locale="en-GB")
        page.goto(server.url)
        page.get_by_test_id("mic").click()
        message = page.get_by_test_id("message")
        expect(message).to_be_visible()
        expect(message).to_contain_text(re.compile("microphone", re.IGNORECASE))
