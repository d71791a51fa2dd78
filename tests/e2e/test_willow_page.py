"""The page that Willow's own paths serve, in a real browser: speech over WebRTC, and a question."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.recorded_microphone import RATE_HZ, talking, write_clip
from tests.server.process import serving
from tests.speech import say

pytestmark = pytest.mark.browser

LEAD_MS, SPOKEN_MS = 2500, 2000
"From the click on *Connect* to the first word, and what the words take."


def test_speech_and_questions_on_willows_page(tmp_path: Path) -> None:
    words = say("turn on the kitchen lights", rate_hz=RATE_HZ, lead_ms=LEAD_MS, tail_ms=20_000)
    clip = write_clip(tmp_path / "mic.wav", words)
    with serving(tmp_path, recogniser={}) as server, talking(clip, f"{server.url}/rtc") as page:
        page.click("#connect")
        expect(page.get_by_test_id("state")).to_have_text("Connected.")
        page.click("#record")
        page.wait_for_timeout(LEAD_MS + SPOKEN_MS)
        page.click("#record")
        heard = page.get_by_test_id("heard")
        expect(heard).to_contain_text(re.compile(r"kitchen lights? \(pocketsphinx, \d+ ms\)"))
        page.goto(f"{server.url}/chatbot")
        page.fill("input[name=text]", "turn on the kitchen lights")
        page.click("#question button")
        expect(page.get_by_test_id("answers")).to_contain_text("Turned on")
