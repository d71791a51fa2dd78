"""A gateway is killed under the page in a real browser: the page goes on at another gateway."""

import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.conversation.ids import gateway_of
from tests.engines.llm.openai.completions_server import (
    Server,
    sends,
    server_in_thread,
    sse,
    text,
)
from tests.server.gateways.two_gateways import (
    SPOKEN_HERE,
    TWO_GATEWAYS,
    gateways,
)
from tests.server.process import serving
from tests.web.browser import chromium
from tests.web.page.calls import is_in

pytestmark = [pytest.mark.real, pytest.mark.browser, pytest.mark.xdist_group("talkers")]

BACK_LIMIT_S = 2.0
"Longest time from the end of a gateway until the page has a call again."


def write(page: Page, words: str, turn: int) -> None:
    """Writes a message and waits for its answer."""
    page.get_by_test_id("text-input").fill(words)
    page.get_by_test_id("text-input").press("Enter")
    reply = page.get_by_test_id("turn").nth(turn).get_by_test_id("reply")
    expect(reply).to_contain_text("Nice to meet you")
    is_in(page, "ready")


def test_the_page_goes_on_when_its_gateway_is_killed(tmp_path: Path) -> None:
    with server_in_thread(Server(sends(sse(*text("Nice to meet you."))))) as model:
        settings = {
            **TWO_GATEWAYS,
            "EARSHOT_LLM__ENGINE": "openai",
            "EARSHOT_LLM__OPTIONS__BASE_URL": model.url,
            "EARSHOT_LLM__OPTIONS__CONTEXT_TOKENS": "32768",
        }
        with (
            serving(tmp_path, settings=settings, recogniser=SPOKEN_HERE) as server,
            chromium("--mute-audio") as browser,
        ):
            page = browser.new_page(base_url=server.url)
            page.goto("/")
            with page.expect_response("**/v1/realtime/calls") as answer:
                write(page, "My name is Paula.", 0)
            number = gateway_of(answer.value.headers["location"].rpartition("/")[2])
            assert number is not None
            page.evaluate(
                """() => {
                  const states = new MutationObserver(() => {
                    const { state } = document.documentElement.dataset;
                    (window.seen ??= []).push([state, Date.now()]);
                  });
                  const attributeFilter = ["data-state"];
                  states.observe(document.documentElement, { attributes: true, attributeFilter });
                }"""
            )
            killed_s = time.time()
            gateways(server)[number - 1].kill()
            is_in(page, "reconnecting")
            is_in(page, "ready")
            back_s = page.evaluate("seen.at(-1)[1]") / 1000 - killed_s
            print(f"the page is back after {back_s:.2f} s")
            assert back_s <= BACK_LIMIT_S
            write(page, "What is my name?", 1)
        prompt = [(one["role"], one["content"]) for one in model.bodies[-1]["messages"]]
        assert prompt.count(("user", "My name is Paula.")) == 1
        assert prompt.count(("assistant", "Nice to meet you.")) == 1
        assert prompt[-1] == ("user", "What is my name?")
