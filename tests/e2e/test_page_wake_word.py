"""A wake word on the page: the real server, a real browser, and synthesized speech."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from engines.registry import available
from tests.e2e.recorded_microphone import RATE_HZ, joined, talking, write_clip
from tests.server.process import Running, serving
from tests.speech import say

if not {one.name: one.installed for one in available("wake")}["micro"]:
    pytest.skip("pymicro-wakeword has no wheel for this machine", allow_module_level=True)

pytestmark = [pytest.mark.real, pytest.mark.browser, pytest.mark.xdist_group("talkers")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("server"), recogniser={}) as running:
        yield running


def is_in(page: Page, state: str) -> None:
    expect(page.locator("html")).to_have_attribute("data-state", state, timeout=15_000)


def test_only_speech_after_the_wake_word_is_answered(server: Running, tmp_path: Path) -> None:
    clip = joined(
        say("turn on the bedroom lights", rate_hz=RATE_HZ, lead_ms=2500, tail_ms=1500),
        say("okay nabu", rate_hz=RATE_HZ, tail_ms=900),
        say("turn on the kitchen lights", rate_hz=RATE_HZ, tail_ms=20_000),
    )
    with talking(write_clip(tmp_path / "mic.wav", clip), server.url) as page:
        choice = page.get_by_test_id("wake")
        choice.select_option(label="Okay Nabu")
        page.get_by_test_id("mic").click()
        is_in(page, "asleep")
        expect(page.get_by_test_id("state")).to_have_text("Say “Okay Nabu”")
        is_in(page, "listening")
        said = page.get_by_test_id("turn").first.get_by_test_id("said")
        expect(said).to_contain_text(re.compile("kitchen lights?"))
        expect(page.get_by_test_id("entity-light.kitchen")).to_have_attribute("data-state", "on")
        expect(page.get_by_test_id("entity-light.bedroom")).to_have_attribute("data-state", "off")
        is_in(page, "speaking")
        is_in(page, "listening")  # for a follow-up
        is_in(page, "asleep")
        expect(page.get_by_test_id("turn")).to_have_count(1)
        page.reload()
        expect(choice).to_have_value("okay_nabu")


def test_a_command_may_follow_the_wake_word_without_a_pause(
    server: Running, tmp_path: Path
) -> None:
    clip = say("okay nabu turn on the kitchen light", rate_hz=RATE_HZ, lead_ms=2500, tail_ms=9000)
    with talking(write_clip(tmp_path / "mic.wav", clip), server.url) as page:
        page.get_by_test_id("wake").select_option(label="Okay Nabu")
        page.get_by_test_id("mic").click()
        is_in(page, "asleep")
        said = page.get_by_test_id("turn").first.get_by_test_id("said")
        expect(said).to_have_text(re.compile("turn on the kitchen lights?"))
