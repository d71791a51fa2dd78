"""`hybrid` gives its model one tool for the home; the templates carry out its sentences."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from core.conversation.usage import TokenUsage
from core.ports import HomeDescription, ToolSpec
from engines.base import AS_CONFIGURED, CallDelta, LlmOptions, Message, TextDelta, ToolCall
from engines.llm import intents
from engines.llm.chat_messages import chat_tools
from engines.llm.home_tool import home_tool, messages_for_model
from engines.llm.hybrid import HybridLlm
from pipeline.shared.token_estimate import tools_tokens
from tests.engines.llm.intents.text_conversation import Talk

pytestmark = pytest.mark.live

TOOLS = Talk().specs()
WEATHER = ToolSpec("weather", "Tells the weather.", {"type": "object"})
QUESTION = Message("user", "I would like to read in the kitchen")


def home(sentence: object, call_id: str = "call_1", name: str = "home") -> ToolCall:
    return ToolCall(call_id, name, {"sentence": sentence})


class ScriptedHomeLlm:
    """An `Llm` that gives scripted answers in turn, and records its requests."""

    name = "script"
    languages: tuple[str, ...] = ()
    context_tokens: int | None = None

    def __init__(self, *answers: Sequence[TextDelta | CallDelta | ToolCall | TokenUsage]) -> None:
        self._answers = list(answers)
        self.requests: list[tuple[list[Message], list[ToolSpec], LlmOptions]] = []

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage, None]:
        self.requests.append((list(messages), list(tools), options))
        for delta in self._answers.pop(0):
            yield delta


def hybrid_llm(model: ScriptedHomeLlm) -> HybridLlm:
    return HybridLlm(intents.create(intents.Settings()), model)


def reply_to(
    engine: HybridLlm,
    *messages: Message,
    tools: Sequence[ToolSpec] = TOOLS,
    language: str = "en",
    options: LlmOptions = AS_CONFIGURED,
) -> list[object]:
    async def scenario() -> list[object]:
        reply = engine.reply(messages, tools, language=language, options=options)
        async with aclosing(reply) as deltas:
            return [delta async for delta in deltas]

    return asyncio.run(scenario())


def result(call: object, **data: object) -> list[Message]:
    assert isinstance(call, ToolCall)
    return [
        Message("assistant", tool_calls=(call,)),
        Message("tool", json.dumps(data), call_id=call.call_id),
    ]


def size(tools: Sequence[ToolSpec]) -> int:
    return len(json.dumps(chat_tools(tools)))


def test_the_model_gets_one_tool_for_the_whole_home() -> None:
    model = ScriptedHomeLlm([TextDelta("Read on.")])
    assert reply_to(hybrid_llm(model), QUESTION, tools=[*TOOLS, WEATHER]) == [TextDelta("Read on.")]
    ((_, tools, _),) = model.requests
    assert [tool.name for tool in tools] == ["home", "weather"]
    assert size(TOOLS) > 25_000
    assert size(tools[:1]) < 1200
    assert tools_tokens(tools[:1]) < 600


def test_a_home_sentence_of_the_model_is_carried_out_and_answered_by_templates() -> None:
    sentence = "turn on the kitchen lights"
    model = ScriptedHomeLlm([CallDelta("call_1", "home", "{"), home(sentence), TokenUsage(9, 3)])
    engine = hybrid_llm(model)
    usage, call = reply_to(engine, QUESTION)
    assert usage == TokenUsage(9, 3)
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments["area"]) == ("HassTurnOn", "kitchen")
    said = reply_to(engine, QUESTION, *result(call, targets=[]))
    direct = reply_to(
        hybrid_llm(ScriptedHomeLlm()), Message("user", sentence), *result(call, targets=[])
    )
    assert said == direct
    assert len(model.requests) == 1, "the model is not called a second time"


def test_text_before_the_call_is_separated_from_the_answer() -> None:
    model = ScriptedHomeLlm([TextDelta("Of course."), home("turn on the kitchen lights")])
    engine = hybrid_llm(model)
    text, call = reply_to(engine, QUESTION)
    assert text == TextDelta("Of course.")
    (said,) = reply_to(engine, QUESTION, *result(call, targets=[]))
    assert isinstance(said, TextDelta)
    assert said.text.startswith(" ")


def test_two_sentences_of_the_model_get_two_answers() -> None:
    model = ScriptedHomeLlm(
        [home("turn on the kitchen lights"), home("set a timer for 5 minutes", "b")]
    )
    engine = hybrid_llm(model)
    light, timer = reply_to(engine, QUESTION)
    done = [*result(light, targets=[]), *result(timer, total_s=300, name="")]
    said = reply_to(engine, QUESTION, *done)
    assert len(said) == 2


def test_a_sentence_that_is_not_understood_is_returned_to_the_model() -> None:
    model = ScriptedHomeLlm([home("make it cosy")], [home("turn on the kitchen lights")])
    (call,) = reply_to(hybrid_llm(model), QUESTION, options=LlmOptions(must_call=True))
    assert isinstance(call, ToolCall)
    assert call.name == "HassTurnOn"
    (_, _, first), (again, _, second) = model.requests
    assert (first.must_call, second.must_call) == (True, False)
    call_message, result_message = again[-2:]
    assert call_message.tool_calls == (home("make it cosy"),)
    assert json.loads(result_message.text)["error"] == "not_understood"


@pytest.mark.parametrize("nonsense", ["make it cosy", "", None, 7, "x" * 5000])
def test_a_model_that_is_never_understood_is_tried_only_three_times(nonsense: object) -> None:
    model = ScriptedHomeLlm(*[[home(nonsense)]] * 5)
    (said,) = reply_to(hybrid_llm(model), QUESTION)
    assert isinstance(said, TextDelta)
    assert len(model.requests) == 3


def test_results_of_other_tools_and_a_sentence_go_to_the_model() -> None:
    weather = ToolCall("call_2", "weather", {})
    model = ScriptedHomeLlm(
        [home("turn on the kitchen lights"), weather], [TextDelta("Done, and sunny.")]
    )
    engine = hybrid_llm(model)
    tools = [*TOOLS, WEATHER]
    other, call = reply_to(engine, QUESTION, tools=tools)
    assert other == weather
    both = [*result(call, targets=[]), *result(weather, sky="blue")]
    assert reply_to(engine, QUESTION, *both, tools=tools) == [TextDelta("Done, and sunny.")]
    shown = model.requests[1][0]
    (mine,) = [call for one in shown for call in one.tool_calls if call.name == "home"]
    assert mine.arguments == {"sentence": "turn on the kitchen lights"}
    assert {one.call_id for one in shown if one.role == "tool"} == {mine.call_id, "call_2"}


def test_user_commands_look_to_the_model_like_calls_of_its_tool() -> None:
    """A model that saw no call would learn to claim that things are done."""
    model = ScriptedHomeLlm([TextDelta("Paris.")])
    engine = hybrid_llm(model)
    command = Message("user", "turn on the kitchen lights and set a timer for 5 minutes")
    calls = reply_to(engine, command)
    assert len(calls) == 2
    done = [message for call in calls for message in result(call, targets=[])]
    said = Message("assistant", "The light is on.")
    reply_to(engine, command, *done, said, Message("user", "what is the capital of France"))
    ((shown, _, _),) = model.requests
    assert [one.role for one in shown] == ["user", "assistant", "tool", "assistant", "user"]
    (mine,) = shown[1].tool_calls
    assert (mine.name, mine.arguments) == ("home", {"sentence": command.text})
    assert shown[2].call_id == mine.call_id


def test_a_language_without_sentences_keeps_the_tools_of_the_home() -> None:
    model = ScriptedHomeLlm([TextDelta("...")])
    engine = hybrid_llm(model)
    reply_to(engine, QUESTION, language="xx")
    assert model.requests[0][1] == TOOLS
    assert engine.filter_tools(TOOLS, language="xx") == TOOLS


def test_without_home_tools_there_is_no_home_tool() -> None:
    assert home_tool([WEATHER]) is None
    model = ScriptedHomeLlm([TextDelta("...")])
    reply_to(hybrid_llm(model), QUESTION, tools=[WEATHER])
    assert model.requests[0][1] == [WEATHER]


def test_another_tool_named_home_keeps_its_name() -> None:
    theirs = ToolSpec("home", "Opens the home page.", {"type": "object"})
    model = ScriptedHomeLlm([ToolCall("call_1", "home", {})])
    assert reply_to(hybrid_llm(model), QUESTION, tools=[*TOOLS, theirs]) == [
        ToolCall("call_1", "home", {})
    ]
    assert [tool.name for tool in model.requests[0][1]] == ["earshot_home", "home"]


def test_sentences_beyond_the_templates_go_to_home_assistant() -> None:
    house = ToolSpec(
        "home_assistant", "A house.", {"type": "object"}, house=HomeDescription(("Kitchen",))
    )
    of_server = ToolSpec("HassTurnOn", "", {"type": "object"}, fallback_name="mcp_HassTurnOn")
    model = ScriptedHomeLlm([home("start the party scene")])
    (call,) = reply_to(hybrid_llm(model), QUESTION, tools=[house, of_server])
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments["text"]) == ("home_assistant", "start the party scene")
    shown = model.requests[0][1]
    assert [tool.name for tool in shown] == ["home", "HassTurnOn"], "an MCP server's stay"
    assert "Kitchen" in shown[0].description


def test_a_client_s_tool_goes_to_the_model_whatever_its_name() -> None:
    schema = {"type": "object", "properties": {"where": {"type": "string"}}}
    theirs = ToolSpec("HassTurnOn", "Opens the valve.", schema, is_clients=True)
    assert home_tool([theirs, WEATHER]) is None
    model = ScriptedHomeLlm([ToolCall("call_1", "HassTurnOn", {"where": "garden"})])
    command = Message("user", "turn on the kitchen lights")
    others = [tool for tool in TOOLS if tool.name != "HassTurnOn"]
    done = reply_to(hybrid_llm(model), command, tools=[*others, theirs])
    assert done == [ToolCall("call_1", "HassTurnOn", {"where": "garden"})]
    assert [tool.name for tool in model.requests[0][1]] == ["home", "HassTurnOn"]


def test_a_sentence_of_the_model_never_calls_a_client_s_tool() -> None:
    theirs = ToolSpec("HassTurnOn", "Opens the valve.", {"type": "object"}, is_clients=True)
    others = [tool for tool in TOOLS if tool.name != "HassTurnOn"]
    model = ScriptedHomeLlm(*([home("turn on the kitchen lights")] for _ in range(3)))
    done = reply_to(hybrid_llm(model), QUESTION, tools=[*others, theirs])
    assert [delta for delta in done if isinstance(delta, ToolCall)] == []


def test_a_conversation_without_calls_is_unchanged() -> None:
    messages = [Message("system", "Be brief."), QUESTION, Message("assistant", "Do.")]
    assert messages_for_model(messages, "home", lambda _: True, lambda _: None) == messages
