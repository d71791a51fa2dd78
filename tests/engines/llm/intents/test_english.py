"""English commands: the tool call and the answer, and sentences that are not understood."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.base import Message, TextDelta, ToolCall
from engines.llm import intents
from engines.llm.intents.grammar import MAX_COMMANDS, MAX_WORDS
from tests.engines.llm.intents.text_conversation import Talk
from tests.shared import shared_data

pytestmark = pytest.mark.live

ENGLISH: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "turn on the kitchen lights",
        "HassTurnOn",
        {"area": "kitchen", "domain": "light"},
        "Turned on the kitchen lights.",
    ),
    (
        "please turn on the kitchen light",
        "HassTurnOn",
        {"area": "kitchen", "domain": "light"},
        "Turned on the kitchen lights.",
    ),
    (
        "Turn on the living room lamp.",
        "HassTurnOn",
        {"name": "living room lamp", "domain": "light"},
        "Turned on the living room lamp.",
    ),
    (
        "turn off the office heater",
        "HassTurnOff",
        {"area": "office", "domain": "climate"},
        "Turned off the office heater.",
    ),
    (
        "turn the fan on in the bathroom please",
        "HassTurnOn",
        {"area": "bathroom", "domain": "fan"},
        "Turned on the bathroom fan.",
    ),
    ("turn on the lights", "HassTurnOn", {"domain": "light"}, "Turned on 14 lights."),
    (
        "set the living room lamp to twenty five percent",
        "HassLightSet",
        {"name": "living room lamp", "brightness": 25, "domain": "light"},
        "Set the living room lamp to 25 percent.",
    ),
    (
        "make the attic lights red",
        "HassLightSet",
        {"area": "attic", "color": "red", "domain": "light"},
        "Set the attic lights to red.",
    ),
    (
        "open the garage door",
        "HassTurnOn",
        {"name": "garage door", "domain": "cover"},
        "Opening the garage door.",
    ),
    (
        "close the bedroom blinds",
        "HassTurnOff",
        {"area": "bedroom", "device_class": "blind", "domain": "cover"},
        "Closing the bedroom blinds.",
    ),
    (
        "is the garage door locked",
        "HassGetState",
        {"name": "garage door", "state": "locked", "domain": "lock"},
        "Yes, the garage door lock is locked.",
    ),
    (
        "is the garage door open",
        "HassGetState",
        {"name": "garage door", "state": "open", "domain": "cover"},
        "No, the garage door is closed.",
    ),
    (
        "close all the blinds",
        "HassTurnOff",
        {"device_class": "blind", "domain": "cover", "everywhere": True},
        "Closing 4 devices.",
    ),
    ("are any lights on", "HassGetState", {"state": "on", "domain": "light"}, "No, none."),
    (
        "set the kitchen temperature to 20 degrees",
        "HassClimateSetTemperature",
        {"area": "kitchen", "temperature": 20},
        "Set the kitchen heater to 20 degrees.",
    ),
    (
        "what is the temperature in the bathroom",
        "HassClimateGetTemperature",
        {"area": "bathroom"},
        "It is 21.5 degrees in the bathroom.",
    ),
    ("set a timer for ten seconds", "HassStartTimer", {"seconds": 10}, "Timer set for 10 seconds."),
    (
        "set a pasta timer for an hour",
        "HassStartTimer",
        {"name": "pasta", "hours": 1},
        "Pasta timer set for 1 hour.",
    ),
    (
        "how much time is left on the tea timer",
        "HassTimerStatus",
        {"name": "tea"},
        "There is no tea timer.",
    ),
    ("what time is it", "HassGetCurrentTime", {}, "It is seven forty three pm."),
    ("what day is it", "HassGetCurrentDate", {}, "Today is Saturday, November 21."),
    (
        "add milk to my shopping list",
        "HassShoppingListAddItem",
        {"item": "milk", "whose": "mine"},
        "Added milk to the shopping list.",  # nobody's voice is known
    ),
    (
        "add my medicine to the shopping list",
        "HassShoppingListAddItem",
        {"item": "my medicine"},
        "Added my medicine to the shopping list.",
    ),
    (
        "play some music in the office",
        "HassMediaUnpause",
        {"area": "office"},
        "Playing on the office speaker.",
    ),
    ("next song", "HassMediaNext", {}, "Nothing is playing."),
]

HONEST = [
    ("what is the weather in paris on saturday", "I can't tell the weather yet."),
    ("remind me to buy milk on sunday at six", "I can't keep reminders yet"),
    ("wake me up at four thirty", "I can't set alarms yet"),
    ("call the office tomorrow at five", "I can't make calls"),
    ("how far is it from london to rome", "I don't know about distances"),
    ("turn on the door", "I can open or close that, but not switch it on or off."),
    ("set the bedroom heater to thirty percent", "A heater takes degrees, not percent."),
    ("what is five divided by zero", "Nobody can divide by zero."),
    ("what is fifty eight minus ninety one", "That is minus 33."),
    ("what is seven divided by two", "That is 3.5."),
    ("never mind", "Okay."),
    ("what can you do", "I can switch lights"),
]

UNKNOWN = [
    "",
    "the",
    "kitchen lights",
    "tell me a joke",
    "turn on the lights in here",
    "turn on the kitchen lights and tell me a joke",
    "i was in the kitchen and the lights were on",
    "turn " * (MAX_WORDS + 1),
]


@pytest.mark.parametrize(("text", "tool", "arguments", "reply"), ENGLISH)
def test_a_command_calls_its_tool_and_is_answered(
    text: str, tool: str, arguments: dict[str, Any], reply: str
) -> None:
    said = asyncio.run(Talk().say(text))
    assert said.calls == ((tool, arguments),)
    assert said.reply == reply


@pytest.mark.parametrize(("text", "reply"), HONEST)
def test_a_request_without_a_tool_is_answered_without_a_call(text: str, reply: str) -> None:
    said = asyncio.run(Talk().say(text))
    assert said.calls == ()
    assert said.reply.startswith(reply)


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_sentence_calls_no_tool(text: str) -> None:
    said = asyncio.run(Talk().say(text))
    assert said.calls == ()
    assert said.reply.startswith("I did not understand that.")


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("open the attic blinds", "I know no blinds in the attic."),
        ("turn on the kitchen television", "I know no device called television in the kitchen."),
        ("set the hallway temperature to twenty degrees", "I know no heater in the hallway."),
        ("set the kitchen temperature to fifty degrees", "That must be between 5 and 35."),
        ("set a timer for thirty hours", "A timer can run from one second to twenty four hours."),
        ("remove soap from my shopping list", "Soap is not on the list."),
        ("turn on the radio", "There is more than one: kitchen radio and bedroom radio."),
        ("cancel the pasta timer", "There is no pasta timer."),
    ],
)
def test_the_reason_of_a_failure_is_spoken(text: str, reply: str) -> None:
    assert asyncio.run(Talk().say(text)).reply.startswith(reply)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (
            "turn on the kitchen lights and open the bedroom blinds",
            ["HassTurnOn", "HassTurnOn"],
        ),
        ("set a timer for one hour and two minutes", ["HassStartTimer"]),
        ("add milk and bread to the shopping list", ["HassShoppingListAddItem"] * 2),
        (
            "turn off the office fan and then set a timer for one minute and what time is it",
            ["HassTurnOff", "HassStartTimer", "HassGetCurrentTime"],
        ),
        ("what time is it and " * MAX_COMMANDS + "what time is it", []),
    ],
)
def test_one_sentence_may_hold_several_commands(text: str, calls: list[str]) -> None:
    said = asyncio.run(Talk().say(text))
    assert [name for name, _ in said.calls] == calls
    if calls:
        assert said.reply.count(".") == len(calls)
    else:
        assert said.reply.startswith("I did not understand that.")


@pytest.mark.parametrize(
    ("heard", "meant"),
    [
        ("turn of the kitchen lights", "turn off the kitchen lights"),
        ("turn on the kitchen light's", "turn on the kitchen lights"),
        ("um turned on the office fan", "turn on the office fan"),
        ("Set a timer for 10 minutes!", "set a timer for ten minutes"),
        ("What's 12 + 3?", "what is twelve plus three"),
        ("what is 7 x 8", "what is seven times eight"),
        ("set the office lights to 21%", "set the office lights to twenty one percent"),
    ],
)
def test_small_recognition_errors_are_corrected(heard: str, meant: str) -> None:
    specs = Talk().specs()
    understood = intents.understand(heard, "en", specs)
    assert understood is not None
    assert understood == intents.understand(meant, "en", specs)


def test_every_recorded_command_is_understood() -> None:
    lines = shared_data("commands", "transcripts.tsv").read_text().splitlines()[1:]
    specs = Talk().specs()
    texts = {line.split("\t")[2] for line in lines}
    unknown = [text for text in texts if intents.understand(text, "en", specs) is None]
    assert not unknown
    assert len(texts) > 100


def test_every_beginning_of_a_command_may_become_one() -> None:
    lines = shared_data("commands", "transcripts.tsv").read_text().splitlines()[1:]
    texts = {line.split("\t")[2] for line in lines}
    begun = {" ".join(text.split()[:end]) for text in texts for end in range(len(text.split()))}
    begun |= {"Please turn on the kitchen.", "could you set the fan", "turn on the kitschen"}
    assert not [text for text in begun if not may_become_command(text)]


@pytest.mark.parametrize(
    "text",
    [
        "can I have a large espresso",
        "Explain how photosynthesis works.",
        "could you recommend a restaurant",
        "get me a cappuccino with",
        "I want an Americano",
    ],
)
def test_text_with_a_foreign_word_cannot_become_a_command(text: str) -> None:
    assert not may_become_command(text)


def may_become_command(text: str) -> bool:
    specs = Talk().specs()
    llm = intents.create(intents.Settings())
    return asyncio.run(llm.may_become_command([Message("user", text)], specs, language="en"))


def test_without_tools_nothing_is_called() -> None:
    async def main() -> list[TextDelta | ToolCall]:
        llm = intents.create(intents.Settings())
        asked = [Message("user", "turn on the kitchen lights")]
        return [delta async for delta in llm.reply(asked, (), language="en")]

    assert asyncio.run(main()) == [TextDelta("I did not understand that.")]


@pytest.mark.parametrize(
    ("result", "reply"),
    [
        ("", "That did not work."),
        ("no json", "That did not work."),
        ("[1]", "That did not work."),
        ('{"error": "unheard_of"}', "That did not work."),
        ('{"targets": [{"name": 1}]}', "Done."),
        ('{"speech": "of another provider"}', "Done."),
    ],
)
def test_a_tool_result_of_any_shape_is_answered(result: str, reply: str) -> None:
    async def main() -> str:
        talk = Talk()
        call = ToolCall("call_1", "HassTurnOn", {})
        messages = [
            Message("user", "turn on the kitchen lights"),
            Message("assistant", tool_calls=(call,)),
            Message("tool", result, call_id="call_1"),
        ]
        stream = talk.llm.reply(messages, talk.specs(), language="en")
        return "".join([delta.text async for delta in stream if isinstance(delta, TextDelta)])

    assert asyncio.run(main()) == reply


WORDS = st.sampled_from(
    ["turn", "on", "off", "the", "kitchen", "lights", "and", "set", "timer", "for", "ten", "add"]
)


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=12).map(" ".join)))
def test_any_text_gets_an_answer_or_a_tool_that_exists(text: str) -> None:
    specs = Talk().specs()
    found = intents.understand(text, "en", specs)
    tools = {spec.name for spec in specs} | {"HassNevermind"}
    for step in found.steps if found else ():
        assert step.intent in tools or not step.intent.startswith("Hass")
