"""Conversations that the server keeps: opened in a second browser, added to by two, deleted."""

from collections.abc import Iterator

import pytest
from msgspec.json import decode
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.web.browser import Stub, serving
from tests.web.page.calls import Json, a_turn, is_in, opened, say, sent, tool_called
from tests.web.page.conftest import FAKE_CALL

pytestmark = pytest.mark.browser

QUESTION, ANSWER = "turn on the light", "The light is on."
ARGUMENTS = '{"area": "kitchen"}'
RESULT = """{"targets": [
{"name": "kitchen lights", "kind": "light", "state": "on", "attributes": {"brightness": 40}},
{"name": "socket", "kind": "switch", "state": "", "attributes": {}}]}"""


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub(kept_days=30)
    with serving(stub):
        yield stub


@pytest.fixture
def other(browser: Browser, stub: Stub) -> Iterator[Page]:
    """A page in a second browser: nothing is stored there."""
    context = browser.new_context(base_url=stub.url, locale="en-GB")
    context.add_init_script(path=FAKE_CALL)
    page = context.new_page()
    page.goto("/")
    yield page
    context.close()


def _menu(page: Page) -> None:
    page.get_by_test_id("conversation-open").click()
    expect(page.get_by_test_id("keep-on-server-choice")).to_be_visible()


def _kept(page: Page, *tools: Json) -> None:
    """Talks, and lets the server keep it."""
    opened(page)
    *first, done, stopped = a_turn(1, QUESTION, ANSWER)
    say(page, *first, *tools, done, stopped)
    _menu(page)
    with page.expect_response("**/v1/conversations/conv_7/turns"):
        page.get_by_test_id("keep-on-server").check(force=True)
    page.keyboard.press("Escape")


def _open_kept(page: Page) -> None:
    _menu(page)
    page.get_by_test_id("kept-open").click()
    expect(page.get_by_test_id("said").first).to_contain_text(QUESTION)
    page.keyboard.press("Escape")


def test_nothing_is_kept_until_the_user_asks_for_it(page: Page, other: Page) -> None:
    opened(page)
    say(page, *a_turn(1, QUESTION, ANSWER))
    _menu(page)
    expect(page.get_by_test_id("keep-on-server")).not_to_be_checked()
    note = page.get_by_test_id("keep-on-server-note")
    expect(note).to_contain_text("127.0.0.1")
    expect(note).to_contain_text("30 days")
    _menu(other)
    expect(other.get_by_test_id("kept")).to_have_count(0)


def test_a_second_browser_continues_a_conversation_with_its_context(
    page: Page, other: Page, stub: Stub
) -> None:
    _kept(page)
    _open_kept(other)
    other.get_by_test_id("mic").click()
    is_in(other, "listening")
    assert stub.sessions[-1]["earshot"]["conversation_id"] == "conv_7"
    (asked,) = sent(other)
    assert (asked["type"], asked["item_id"]) == ("conversation.item.retrieve", "item_1")
    unknown = {"code": "item_not_found", "message": "no such item", "event_id": asked["event_id"]}
    say(other, {"type": "error", "error": unknown})
    other.wait_for_function("calls.at(-1).sent.length === 3")
    user, assistant = (event["item"] for event in sent(other)[1:])
    assert (user["id"], user["content"][0]["text"]) == ("item_1", QUESTION)
    assert (assistant["role"], assistant["content"][0]["text"]) == ("assistant", ANSWER)
    say(other, {"type": "conversation.item.added", "item": user})
    expect(other.get_by_test_id("turn")).to_have_count(1)


def test_tool_calls_are_shown_and_sent_again_with_their_turn(page: Page, other: Page) -> None:
    cut = '{"text": "a long text\N{HORIZONTAL ELLIPSIS}'
    _kept(
        page,
        *tool_called("resp_1", "HassTurnOn", ARGUMENTS, RESULT),
        *tool_called("resp_1", "Cut", cut, RESULT),
        *tool_called("resp_1", "not a name", ARGUMENTS, RESULT),
    )
    _open_kept(other)
    tools = other.get_by_test_id("tools")
    expect(tools.locator("summary")).to_have_text("Called HassTurnOn")
    tools.locator("summary").click()
    expect(tools).to_contain_text('"area": "kitchen"')
    expect(tools.get_by_test_id("tool-changed")).to_have_text("kitchen lights: on, 40 %; socket")
    expect(tools).to_contain_text('"name": "socket"')
    other.get_by_test_id("mic").click()
    is_in(other, "listening")
    (asked,) = sent(other)
    unknown = {"code": "item_not_found", "message": "no such item", "event_id": asked["event_id"]}
    say(other, {"type": "error", "error": unknown})
    other.wait_for_function("calls.at(-1).sent.length === 5")
    items = [event["item"] for event in sent(other)[1:]]
    assert [item["type"] for item in items] == [
        *("message", "function_call", "function_call_output", "message")
    ]
    call, output = items[1:3]
    assert (call["name"], call["arguments"], output["output"]) == ("HassTurnOn", ARGUMENTS, RESULT)
    assert call["call_id"] == output["call_id"]


def test_a_strange_result_of_a_tool_is_shown_as_it_is(page: Page) -> None:
    opened(page)
    *first, done, stopped = a_turn(1, QUESTION, ANSWER)
    strange = '{"targets": [null, {"name": 3}, {"name": "x", "state": "odd", "attributes": null}]}'
    say(page, *first, *tool_called("resp_1", "theirs", "{}", strange), done, stopped)
    tools = page.get_by_test_id("tools")
    tools.locator("summary").click()
    expect(tools.get_by_test_id("tool-changed")).to_have_text("x")
    expect(tools).to_contain_text('"state": "odd"')


def test_a_kept_turn_is_sent_only_once(page: Page, other: Page) -> None:
    _kept(page, *tool_called("resp_1", "HassTurnOn", ARGUMENTS, RESULT))
    asked: list[str] = []
    other.on("request", lambda request: asked.append(request.method))
    _open_kept(other)
    _menu(other)
    other.get_by_test_id("keep-on-server").check(force=True)
    other.keyboard.press("Escape")
    other.get_by_test_id("mic").click()
    is_in(other, "listening")
    with other.expect_request("**/turns") as sending:
        say(other, *a_turn(2, "and the fan", "It is off."))
    body = decode(sending.value.post_data or "")
    assert [turn["id"] for turn in body["turns"]] == ["item_2"]
    assert "PUT" not in asked


def test_a_server_that_remembers_gets_no_message_twice(page: Page, other: Page) -> None:
    _kept(page)
    _open_kept(other)
    other.get_by_test_id("mic").click()
    is_in(other, "listening")
    say(other, {"type": "conversation.item.retrieved", "item": {"id": "item_1"}})
    say(other, *a_turn(2, "and the fan", "It is off."))
    expect(other.get_by_test_id("turn")).to_have_count(2)
    assert len(sent(other)) == 1


def test_two_browsers_that_write_lose_nothing_of_each_other(
    page: Page, other: Page, context: BrowserContext
) -> None:
    _kept(page)
    _open_kept(other)
    _menu(other)
    other.get_by_test_id("keep-on-server").check(force=True)
    other.keyboard.press("Escape")
    other.get_by_test_id("mic").click()
    is_in(other, "listening")
    for one, number in ((other, 2), (page, 3)):
        with one.expect_response("**/v1/conversations/conv_7/turns"):
            say(one, *a_turn(number, f"question {number}", f"answer {number}"))
    third = context.new_page()
    third.goto("/")
    _open_kept(third)
    words = [f"You: {said}" for said in (QUESTION, "question 2", "question 3")]
    expect(third.get_by_test_id("said")).to_have_text(words)


def test_what_is_deleted_in_one_browser_is_kept_by_no_other(
    page: Page, other: Page, stub: Stub
) -> None:
    _kept(page)
    _menu(other)
    other.get_by_test_id("kept-delete-all").click()
    expect(other.get_by_test_id("kept")).to_have_count(0)
    assert stub.forgotten.get(timeout=10) == "conv_7"
    with page.expect_response(lambda answer: answer.status == 404):
        say(page, *a_turn(2, "and the fan", "It is off."))
    expect(page.get_by_test_id("turn")).to_have_count(2)
    _menu(page)
    expect(page.get_by_test_id("kept")).to_have_count(0)
    expect(page.get_by_test_id("kept-problem")).to_be_empty()


def test_the_present_conversation_is_deleted_from_the_list(page: Page, stub: Stub) -> None:
    _kept(page)
    _menu(page)
    delete = page.get_by_test_id("kept-delete")
    expect(delete).to_have_accessible_name(f"Delete “{QUESTION}”")
    delete.click()
    expect(page.get_by_test_id("empty")).to_be_visible()
    expect(page.get_by_test_id("kept")).to_have_count(0)
    assert stub.forgotten.get(timeout=10) == "conv_7"
