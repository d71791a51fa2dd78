"""The menu of the conversation: copy, download, keep its sound or itself, delete it."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.web.browser import Stub
from tests.web.page.calls import a_turn, is_in, opened, say, tool_called

pytestmark = pytest.mark.browser

QUESTION, ANSWER = "turn on the light", "The light is **on**."


def _talked(page: Page) -> None:
    opened(page)
    say(page, *a_turn(1, QUESTION, ANSWER))
    expect(page.get_by_test_id("turn")).to_have_count(1)


def _saved(page: Page, button: str) -> tuple[str, str]:
    with page.expect_download() as download:
        page.get_by_test_id(button).click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    return download.value.suggested_filename, text


def test_the_conversation_is_copied_and_downloaded(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/")
    page.get_by_test_id("conversation-open").click()
    expect(page.get_by_test_id("copy-all")).to_be_disabled()
    expect(page.get_by_test_id("delete-all")).to_be_disabled()
    page.keyboard.press("Escape")
    _talked(page)
    page.get_by_test_id("conversation-open").click()
    written = f"You: {QUESTION}\nEarshot: {ANSWER}\n"
    page.get_by_test_id("copy-all").click()
    expect(page.get_by_test_id("conversation-said")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == written
    name, text = _saved(page, "save-text")
    assert (name.rpartition(".")[2], text) == ("txt", written)
    name, text = _saved(page, "save-json")
    turn = {"source": "voice", "said": QUESTION, "tool_calls": [], "reply": ANSWER}
    assert (name.rpartition(".")[2], json.loads(text)) == ("json", [{**turn, "status": "answered"}])


def test_the_json_says_which_tools_were_called_and_what_they_changed(page: Page) -> None:
    opened(page)
    *first, done, stopped = a_turn(1, QUESTION, ANSWER)
    arguments, result = '{"name": "light"}', '{"targets": [{"id": "light.lamp", "state": "on"}]}'
    say(page, *first, *tool_called("resp_1", "HassTurnOn", arguments, result), done, stopped)
    page.get_by_test_id("conversation-open").click()
    _, text = _saved(page, "save-json")
    (turn,) = json.loads(text)
    call = {"name": "HassTurnOn", "arguments": arguments, "output": result}
    assert turn["tool_calls"] == [call]


def test_sound_is_kept_only_on_request_and_forgotten_with_the_switch(page: Page) -> None:
    _talked(page)
    page.get_by_test_id("conversation-open").click()
    switch, save = page.get_by_test_id("keep-sound"), page.get_by_test_id("save-sound")
    expect(switch).not_to_be_checked()
    expect(save).to_be_hidden()
    switch.check(force=True)
    expect(save).to_be_visible()
    with page.expect_download() as download:
        save.click()
    assert download.value.suggested_filename.endswith(".webm")
    assert Path(download.value.path()).read_bytes().startswith(b"\x1a\x45\xdf\xa3")  # EBML
    switch.uncheck(force=True)
    expect(save).to_be_hidden()


def test_a_kept_conversation_comes_back_in_a_new_tab(
    page: Page, context: BrowserContext, stub: Stub
) -> None:
    _talked(page)
    page.get_by_test_id("conversation-open").click()
    expect(page.get_by_test_id("keep-conversation")).not_to_be_checked()
    page.get_by_test_id("keep-conversation").check(force=True)
    page.close()
    later = context.new_page()
    later.goto("/")
    expect(later.get_by_test_id("said")).to_contain_text(QUESTION)
    later.get_by_test_id("mic").click()
    is_in(later, "listening")
    assert stub.sessions[-1]["earshot"]["conversation_id"] == "conv_7"


def test_a_conversation_ends_with_its_tab_by_default(page: Page, context: BrowserContext) -> None:
    _talked(page)
    page.reload()
    expect(page.get_by_test_id("turn")).to_have_count(1)
    page.close()
    later = context.new_page()
    later.goto("/")
    expect(later.get_by_test_id("empty")).to_be_visible()


def test_a_second_tab_does_not_take_a_kept_conversation(
    page: Page, context: BrowserContext
) -> None:
    _talked(page)
    page.get_by_test_id("conversation-open").click()
    page.get_by_test_id("keep-conversation").check(force=True)
    second = context.new_page()
    second.goto("/")
    expect(second.get_by_test_id("empty")).to_be_visible()
    page.reload()
    expect(page.get_by_test_id("turn")).to_have_count(1)


def test_delete_removes_it_from_browser_and_server(page: Page, stub: Stub) -> None:
    _talked(page)
    page.get_by_test_id("conversation-open").click()
    page.get_by_test_id("keep-conversation").check(force=True)
    page.get_by_test_id("delete-all").click()
    expect(page.get_by_test_id("empty")).to_be_visible()
    is_in(page, "off")
    assert stub.forgotten.get(timeout=10) == "conv_7"
    stored = "JSON.stringify({ ...localStorage }) + JSON.stringify({ ...sessionStorage })"
    assert QUESTION not in page.evaluate(stored)
    page.reload()
    expect(page.get_by_test_id("empty")).to_be_visible()
