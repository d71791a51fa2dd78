"""The page's conversation turns server events into turns. Runs in a browser without a server."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.web.browser import Stub, serving
from tests.web.page.calls import (
    TRANSCRIPTION,
    Json,
    answer,
    created,
    done,
    said,
    spoken,
    traced,
    user,
)

pytestmark = pytest.mark.browser


REDUCE = """async (events) => {
  const { activity, emptyConversation, hasActiveResponse, isShown, liveWords, reduce } =
    await import("/static/conversation/reducer.js");
  const { medians } = await import("/static/conversation/medians.js");
  const state = events.reduce(reduce, emptyConversation());
  return { ...state, activity: activity(state), live: liveWords(state), medians: medians(state),
    shown: state.turns.filter(isShown), busy: hasActiveResponse(state) };
}"""


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    stub = Stub()
    with serving(stub):
        page = browser.new_page()
        page.goto(f"{stub.url}/static/icon.svg")  # same origin, nothing of the page running
        yield page
        page.close()


def reduced(tab: Page, *events: Json) -> Json:
    state: Json = tab.evaluate(REDUCE, list(events))
    return state


def test_partial_words_appear_during_speech(tab: Page) -> None:
    start = {"type": "input_audio_buffer.speech_started", "item_id": "i", "audio_start_ms": 0}
    hypothesis = {
        "type": "earshot.hypothesis",
        "item_id": "i",
        "stable": "turn on",
        "unstable": "the",
    }
    state = reduced(tab, start, hypothesis)
    assert state["activity"] == "hearing"
    assert state["live"] == {"stable": "turn on", "unstable": "the"}
    assert state["shown"] == []
    state = reduced(tab, start, hypothesis, *spoken("i", "turn on the light")[1:])
    assert state["live"] == {"stable": "", "unstable": ""}
    assert [turn["said"] for turn in state["shown"]] == ["turn on the light"]
    assert state["activity"] == "thinking"


def test_a_turn_from_speech_to_playout(tab: Page) -> None:
    events = [*spoken("i", "hello"), created("r"), said("r", "Good "), said("r", "day.")]
    playing = {"type": "output_audio_buffer.started", "response_id": "r"}
    assert reduced(tab, *events)["activity"] == "thinking"
    assert reduced(tab, *events, playing)["activity"] == "speaking"
    stopped = {"type": "output_audio_buffer.stopped", "response_id": "r"}
    state = reduced(tab, *events, playing, answer("r", "Good day."), done("r"), stopped)
    (turn,) = state["shown"]
    assert (turn["said"], turn["reply"], turn["status"]) == ("hello", "Good day.", "answered")
    assert state["activity"] is None
    assert not state["busy"]


def test_an_interrupted_answer_keeps_the_played_text(tab: Page) -> None:
    events = [*spoken("i", "tell me"), created("r"), said("r", "It is a long story.")]
    cut = [answer("r", "It is", "incomplete"), done("r", "cancelled", reason="turn_detected")]
    cleared = {"type": "output_audio_buffer.cleared", "response_id": "r"}
    (turn,) = reduced(tab, *events, *cut, cleared)["shown"]
    assert (turn["status"], turn["heard"], turn["reply"]) == ("cut", "It is", "It is a long story.")


def test_an_answer_cut_during_playout_is_marked(tab: Page) -> None:
    cleared = {"type": "output_audio_buffer.cleared", "response_id": "r"}
    events = [*spoken("i", "hi"), created("r"), answer("r", "Hello."), done("r"), cleared]
    (turn,) = reduced(tab, *events)["shown"]
    assert (turn["status"], turn["heard"]) == ("cut", "Hello.")


@pytest.mark.parametrize(
    "events",
    [
        [{"type": f"{TRANSCRIPTION}.completed", "item_id": "i", "transcript": " "}],
        [traced(None, "i", "rejected")],
        [{"type": f"{TRANSCRIPTION}.completed", "item_id": "i", "transcript": ""}, created("r"),
         done("r", "failed", error={"code": "no_speech", "message": "no speech"})],
    ],
    ids=["empty transcript", "rejected", "nothing to answer"],
)  # fmt: skip
def test_noise_leaves_no_turn(tab: Page, events: list[Json]) -> None:
    state = reduced(tab, *spoken("i", "")[:4], *events)
    assert state["shown"] == []
    assert state["activity"] is None


def test_a_failed_answer_says_why(tab: Page) -> None:
    failed = done("r", "failed", error={"code": "engine_crashed", "message": "asr died"})
    (turn,) = reduced(tab, *spoken("i", "hi"), created("r"), failed)["shown"]
    assert (turn["status"], turn["reason"]) == ("failed", "asr died")


def test_an_announcement_is_a_turn_of_its_own(tab: Page) -> None:
    events = [*spoken("i", "hi"), created("r"), answer("r", "Hello."), done("r")]
    ring = [created("r2"), said("r2", "Your timer is up."), done("r2")]
    turns = reduced(tab, *events, *ring)["shown"]
    assert [(turn["said"], turn["reply"]) for turn in turns] == [
        ("hi", "Hello."),
        ("", "Your timer is up."),
    ]


def test_the_latest_question_gets_the_answer(tab: Page) -> None:
    events = [user("a", "one"), user("b", "two"), created("r"), said("r", "Two it is."), done("r")]
    turns = reduced(tab, *events)["shown"]
    assert [(turn["said"], turn["reply"]) for turn in turns] == [("one", ""), ("two", "Two it is.")]


def test_a_continued_sentence_is_one_turn(tab: Page) -> None:
    gone = {"type": "conversation.item.deleted", "item_id": "a"}
    begun = [*spoken("a", "make it"), created("r"), said("r", "I did"), done("r", "cancelled")]
    answered = [created("q"), said("q", "It is red."), done("q")]
    events = [*begun, *spoken("b", "make it red"), gone, *answered]
    state = reduced(tab, *events)
    assert [(turn["said"], turn["reply"]) for turn in state["shown"]] == [
        ("make it red", "It is red.")
    ]
    unknown = {"type": "conversation.item.deleted", "item_id": "c"}
    assert reduced(tab, *events, unknown)["shown"] == state["shown"]


def test_a_lost_connection_ends_the_open_turn(tab: Page) -> None:
    asked = [user("a", "one"), created("r"), said("r", "It")]
    hearing = {"type": "input_audio_buffer.speech_started", "item_id": "b", "audio_start_ms": 0}
    state = reduced(tab, *asked, hearing, {"type": "page.disconnected"})
    assert [turn["status"] for turn in state["turns"]] == ["lost", "noise"]
    assert state["activity"] is None


def test_medians_count_answered_turns_only(tab: Page) -> None:
    events: list[Json] = []
    for number, end in enumerate((400, 500, 900)):
        item, response = f"i{number}", f"r{number}"
        spans = (("endpoint_wait", 0, 300), ("asr", 300, end))
        status = "cancelled" if end == 900 else "answered"
        events += [*spoken(item, "hi"), created(response), done(response)]
        events += [traced(response, item, status, *spans)]
    assert reduced(tab, *events)["medians"] == {
        "count": 2,
        "latency_ms": 450,
        "latency_p95_ms": 500,
        "stages": {"endpoint_wait": 300, "asr": 150},
    }


def test_the_conversation_id_is_kept_and_unknown_events_are_ignored(tab: Page) -> None:
    session = {"type": "realtime", "earshot": {"conversation_id": "conv_1"}}
    created_event = {"type": "session.created", "session": session}
    state = reduced(tab, created_event, {"type": "rate_limits.updated"}, {"type": "toString"})
    assert state["conversationId"] == "conv_1"
    assert state["turns"] == []


def test_the_page_keeps_a_bounded_number_of_turns(tab: Page) -> None:
    events = [user(f"i{number}", f"text {number}") for number in range(210)]
    turns = reduced(tab, *events)["turns"]
    assert len(turns) == 200
    assert turns[-1]["said"] == "text 209"


def test_an_event_without_effect_keeps_the_same_turn_objects(tab: Page) -> None:
    events = [*spoken("i", "hi"), created("r"), done("r"), traced("r", "i", "answered")]
    nothing = [said("unknown", "x"), done("unknown"), answer("r", ""), spoken("i", "hi")[-1]]
    same = tab.evaluate(
        """async ([events, nothing]) => {
          const { emptyConversation, reduce } = await import("/static/conversation/reducer.js");
          const before = events.reduce(reduce, emptyConversation());
          return nothing.map((event) => reduce(before, event) === before);
        }""",
        [events, nothing],
    )
    assert same == [True, True, True, True]


def test_medians_are_not_recomputed_while_words_arrive(tab: Page) -> None:
    events = [*spoken("i", "hi"), created("r"), traced("r", "i", "answered")]
    same = tab.evaluate(
        """async ([events, word]) => {
          const reducer = await import("/static/conversation/reducer.js");
          const { emptyConversation, reduce, tracesOf } = reducer;
          const before = events.reduce(reduce, emptyConversation());
          const [old] = tracesOf(before);
          const [now, ...more] = tracesOf(reduce(before, word));
          return old !== undefined && old === now && more.length === 0;
        }""",
        [events, said("r", "word ")],
    )
    assert same


def test_a_conversation_is_restored_without_its_open_turn(tab: Page) -> None:
    events = [*spoken("a", "one"), created("r"), said("r", "One."), answer("r", "One."), done("r")]
    session = {"type": "session.created", "session": {"earshot": {"conversation_id": "conv_1"}}}
    states = tab.evaluate(
        """async (events) => {
          const page = await import("/static/conversation/reducer.js");
          const { emptyConversation, kept, reduce, restored } = page;
          const state = events.reduce(reduce, emptyConversation());
          const value = JSON.parse(JSON.stringify(kept(state)));
          return [restored(value), restored(null), restored("conv_1"), restored({ turns: [] })];
        }""",
        [session, *events, user("b", "two")],
    )
    assert states[1:] == [None, None, None]
    assert states[0]["conversationId"] == "conv_1"
    assert [(turn["said"], turn["status"]) for turn in states[0]["turns"]] == [
        ("one", "answered"),
        ("two", "lost"),
    ]


def test_calls_of_the_servers_tools_belong_to_their_answer(tab: Page) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "HassTurnOn", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": '{"targets": []}'}
    seen = [{"type": "earshot.tool", "response_id": "r", "item": item} for item in (call, result)]
    asked = [*spoken("i", "light"), created("r")]
    (begun,) = reduced(tab, *asked, seen[0])["shown"]
    assert begun["tools"] == [{"id": "c", "name": "HassTurnOn", "arguments": "{}", "output": None}]
    (turn,) = reduced(tab, *asked, *seen, said("r", "On."))["shown"]
    assert turn["tools"][0]["output"] == '{"targets": []}'
