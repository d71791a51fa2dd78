"""A streamed answer is always visible, scrolls along, and is not disturbed by updates."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.web.page.calls import a_turn, created, opened, said, say, spoken

pytestmark = pytest.mark.browser

ENTRANCE_MS = 300
"A turn comes in within 0.25 s, fading."

STREAM = """async ({ everyMs, words }) => {
  const frames = [];
  const nodes = new Set();
  let isOver = false;
  let begunAt = null;
  const measure = (now) => {
    const turn = document.querySelector("#turns > li:last-child");
    if (turn?.textContent.includes("word")) {
      begunAt ??= now;
      nodes.add(turn);
      frames.push({ ms: now - begunAt, opacity: Number(getComputedStyle(turn).opacity) });
    }
    if (!isOver) requestAnimationFrame(measure);
  };
  requestAnimationFrame(measure);
  for (let word = 0; word < words; word += 1) {
    const type = "response.output_audio_transcript.delta";
    calls.at(-1).say({ type, response_id: "r", delta: `word ${word} ` });
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
  isOver = true;
  return { frames, nodes: nodes.size };
}"""
"Speaks as a language model that gives a word each `everyMs`, and looks at the turn in every frame."

TOP = 'scrollY + document.getElementById("scroll").scrollTop'
"How far down the page is; which of the two scrolls depends on its width."

SIGHT = f"""() => {{
  const dock = document.getElementById("talk").getBoundingClientRect().top;
  const words = document.querySelector("#turns > li:last-child").getBoundingClientRect().bottom;
  return {{ hidden: words - dock, top: {TOP} }};
}}"""
"`hidden`: pixels of the newest words below the dock."

DOWN = """async () => {
  for (const one of [document.scrollingElement, document.getElementById("scroll")]) {
    one.scrollTop = one.scrollHeight;
  }
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}"""
"To the very end: less far, it is a movement up for a wheel that was quicker."

AT_REST = f"""async () => {{
  for (let [last, same] = [-1, 0]; same < 5; ) {{
    const top = {TOP};
    same = top === last ? same + 1 : 0;
    last = top;
    await new Promise(requestAnimationFrame);
  }}
}}"""
"Waits until a movement that began earlier is over: it would undo a later one."


def streamed(page: Page, every_ms: int, words: int) -> Any:
    return page.evaluate(STREAM, {"everyMs": every_ms, "words": words})


@pytest.mark.parametrize("every_ms", [10, 120])
def test_an_answer_is_visible_in_every_frame(page: Page, every_ms: int) -> None:
    opened(page)
    say(page, *spoken("i", "tell me a story"), created("r"))
    seen = streamed(page, every_ms, words=1500 // every_ms)
    later = [frame["opacity"] for frame in seen["frames"] if frame["ms"] > ENTRANCE_MS]
    assert len(later) > 10
    assert min(later) >= 0.5
    assert seen["nodes"] == 1, "the turn was replaced while it grew"


@pytest.mark.parametrize("size", [(390, 844), (1360, 600)], ids=["phone", "desktop"])
def test_a_long_answer_is_followed_until_the_user_scrolls_up(
    page: Page, size: tuple[int, int]
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    opened(page)
    say(page, *a_turn(1, "hello", "Hello. " * 60), *spoken("i", "tell me more"), created("r"))
    streamed(page, every_ms=2, words=200)
    followed = page.evaluate(SIGHT)
    assert followed["hidden"] <= 0
    page.mouse.move(size[0] / 4, size[1] / 3)
    page.mouse.wheel(0, -60)  # less than a screen, as a finger begins
    page.wait_for_function(f"(top) => {TOP} < top", arg=followed["top"])
    page.mouse.wheel(0, -200)
    page.wait_for_function(f"(top) => {TOP} <= top - 200", arg=followed["top"])
    above = page.evaluate(SIGHT)
    streamed(page, every_ms=2, words=60)
    assert page.evaluate(SIGHT)["top"] == above["top"], "the user was pulled back down"
    page.mouse.wheel(0, 10_000)
    page.wait_for_function(f"(top) => {TOP} > top", arg=above["top"])
    page.evaluate(AT_REST)  # at the end: of the words, or on a phone of the home below them
    page.evaluate(DOWN)
    streamed(page, every_ms=2, words=60)
    assert page.evaluate(SIGHT)["hidden"] <= 0


def test_updates_keep_selection_focus_and_opened_timings(page: Page) -> None:
    opened(page)
    say(page, *a_turn(1, "one", "One."), *a_turn(2, "two", "Two."))
    first, second = page.get_by_test_id("waterfall").all()
    first.locator("summary").click()  # opened by the user; the second is, as the latest
    second.locator("summary").click()
    page.get_by_test_id("stage-asr").first.focus()
    say(page, *spoken("i", "three"), created("r"), said("r", "It is a"))
    page.evaluate(
        """() => {
          const words = document.querySelector("#turns > li:last-child .reply p").lastChild;
          getSelection().setBaseAndExtent(words, 0, words, 5);
        }"""
    )
    say(page, said("r", " long story."), *a_turn(4, "four", "Four."))
    assert page.evaluate("getSelection().toString()") == "It is"
    expect(page.get_by_test_id("stage-asr").first).to_be_focused()
    opens = page.get_by_test_id("waterfall").evaluate_all("(all) => all.map((one) => one.open)")
    assert opens == [True, False, True]


def test_a_late_transcript_appears_in_its_place(page: Page) -> None:
    opened(page)
    heard = spoken("a", "spoken first")
    say(page, *heard[:4], *spoken("b", "said second"))
    expect(page.get_by_test_id("said")).to_have_count(1)
    say(page, heard[4])  # the transcript of the first comes last
    expect(page.get_by_test_id("said")).to_have_text(["You: spoken first", "You: said second"])


def test_a_new_conversation_is_announced_to_screen_readers(page: Page) -> None:
    opened(page)
    say(page, *a_turn(1, "one", "The old answer."))
    announcer = page.get_by_test_id("announcer")
    expect(announcer).to_contain_text("The old answer.")
    page.get_by_test_id("hangup").click()
    page.get_by_test_id("fresh").click()
    expect(page.get_by_test_id("turn")).to_have_count(0)
    page.get_by_test_id("mic").click()
    expect(page.locator("html")).to_have_attribute("data-state", "listening")
    say(page, *a_turn(2, "two", "The new answer."))
    expect(announcer).to_contain_text("The new answer.")


def test_calls_of_the_servers_tools_are_shown_folded(page: Page) -> None:
    opened(page)
    call = {"type": "function_call", "call_id": "c", "name": "HassTurnOn", "arguments": '{"a":1}'}
    result = {"type": "function_call_output", "call_id": "c", "output": "<b>done</b>"}
    seen = [{"type": "earshot.tool", "response_id": "r", "item": item} for item in (call, result)]
    say(page, *spoken("i", "light"), created("r"), *seen, said("r", "On."))
    tools = page.get_by_test_id("tools")
    expect(tools.locator("summary")).to_have_text("Called HassTurnOn")
    expect(tools.get_by_text("Arguments")).to_be_hidden()
    tools.locator("summary").click()
    expect(tools.locator("pre")).to_have_text(['{ "a": 1 }', "<b>done</b>"])
    say(page, said("r", " Now."))
    expect(tools.get_by_text("Arguments")).to_be_visible()
