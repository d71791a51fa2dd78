"""A response in a form: words and tools first, then one more request without tools."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from core.conversation.usage import TokenUsage
from core.errors import AnswerFormatBroken, EarshotError
from core.ports import ToolContext, ToolSpec
from engines.base import AnswerFormat, LlmOptions, Message, TextDelta, ToolCall
from pipeline.response.generation import TextGeneration
from pipeline.response.plan import ResponsePlan
from pipeline.shared.turn import Turn
from pipeline.tools.calls.rounds import ToolAccess
from pipeline.tools.toolbox import Toolbox
from tests.loop import run_virtual
from tests.pipeline.fakes import Adder, Counts, ToneTts

FORM = AnswerFormat({"type": "object", "properties": {"sum": {"type": "integer"}}})
ADD = ToolCall("call_1", "add", {"a": 2, "b": 2})
CLIENTS = ToolSpec("note", "", {"type": "object"}, is_clients=True)


class ScriptedLlm:
    """A model that gives one reply after the other."""

    name = "scripted"
    languages: tuple[str, ...] = ("en",)
    context_tokens: int | None = None

    def __init__(self, *replies: Sequence[Any]) -> None:
        self.replies = list(replies)
        self.asked: list[Sequence[Message]] = []
        self.tools_asked: list[Sequence[ToolSpec]] = []
        self.options_asked: list[LlmOptions] = []

    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], **how: Any
    ) -> AsyncGenerator[Any, None]:
        self.asked.append(messages)
        self.tools_asked.append(tools)
        self.options_asked.append(how["options"])
        for delta in self.replies[len(self.asked) - 1]:
            yield TextDelta(delta) if isinstance(delta, str) else delta


class TemplatedLlm(ScriptedLlm):
    """A model behind templates."""

    @property
    def raw_model(self) -> "ScriptedLlm":
        return self


def answer(
    llm: ScriptedLlm, *, has_tools: bool = True, limit: int | None = None, **plan: Any
) -> list[Any]:
    """Returns the pieces of the response."""

    @asynccontextmanager
    async def slot() -> AsyncIterator[None]:
        yield

    async def at_once() -> None:
        """Confirms the turn at once."""

    options = LlmOptions(max_output_tokens=limit, answer_format=FORM)
    given = ResponsePlan(
        Turn("t"), "text", "en", "", "default", 1.0, llm=llm, tts=ToneTts(), options=options, **plan
    )
    toolbox = Toolbox([Adder()] if has_tools else [], Counts())
    access = ToolAccess(toolbox, ToolContext("c", "en"), at_once, lambda _: None)
    generation = TextGeneration(given, [Message("user", "2 + 2")], access, slot, Counts())

    deltas: list[Any] = []

    async def main() -> None:
        async for delta in generation.stream():
            deltas.append(delta)  # noqa: PERF401 - an error leaves what came before it

    run_virtual(main())
    return deltas


def test_tools_run_first_and_the_words_after_them_are_not_part_of_the_answer() -> None:
    llm = ScriptedLlm(["One moment.", ADD], ["It is", " 4."], ['{"sum"', ": 4}"])
    assert answer(llm) == ['{"sum"', ": 4}"]
    assert [len(tools) for tools in llm.tools_asked] == [1, 1, 0]
    assert [options.answer_format for options in llm.options_asked] == [None, None, FORM]
    roles = [message.role for message in llm.asked[-1]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert llm.asked[-1][3].text == "It is 4."


def test_without_tools_the_first_reply_has_the_form() -> None:
    llm = ScriptedLlm(['{"sum": 4}'])
    assert answer(llm, has_tools=False) == ['{"sum": 4}']
    assert llm.options_asked[0].answer_format == FORM
    assert [message.role for message in llm.asked[0]] == ["user"]


def test_words_of_templates_are_given_the_form_by_the_model() -> None:
    llm = TemplatedLlm(["It is four."], ['{"sum": 4}'])
    assert answer(llm, has_tools=False) == ['{"sum": 4}']
    assert [message.text for message in llm.asked[1]][1] == "It is four."


def test_calls_of_the_clients_tools_end_the_response_without_words() -> None:
    call = ToolCall("call_2", "note", {})
    assert answer(ScriptedLlm(["I note it.", call]), client_tools=(CLIENTS,)) == [call]


def test_the_apology_for_a_failed_tool_is_given_the_form_too() -> None:
    wrong = ToolCall("call_1", "add", {"a": "two"})
    llm = ScriptedLlm([wrong], [], ['{"sum": 0}'])
    assert answer(llm) == ['{"sum": 0}']
    assert llm.asked[-1][-2].role == "assistant"
    assert "work" in llm.asked[-1][-2].text


@pytest.mark.parametrize("text", ["It is 4.", '{"sum": "four"}', ""])
def test_an_answer_without_its_form_is_an_error(text: str) -> None:
    with pytest.raises(AnswerFormatBroken) as broken:
        answer(ScriptedLlm(["4"], [text]))
    assert isinstance(broken.value, EarshotError)
    assert broken.value.code == "answer_format_broken"


def test_an_answer_that_the_callers_limit_cut_is_passed_on() -> None:
    usage = TokenUsage(10, 3, 0)
    assert answer(ScriptedLlm(["4"], ['{"su', usage]), limit=3) == ['{"su', usage]
    with pytest.raises(AnswerFormatBroken):
        answer(ScriptedLlm(["4"], ['{"su', usage]), limit=4)
