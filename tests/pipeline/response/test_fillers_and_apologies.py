"""Fillers and apologies are spoken when something is slow or fails; a voice gets readable text."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from core.conversation.events import (
    OutputItemDone,
    OutputTextDelta,
    PlayoutStarted,
    ResponseDone,
    SessionEvent,
    TurnTimeline,
)
from core.conversation.items import FunctionCallItem, FunctionOutputItem, MessageItem, TextPart
from core.ports import ToolContext, ToolOutcome, ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest, SessionSettings, TurnDetection
from pipeline.tools.mcp.tool import ApprovalDecision, ClientMcpTool
from pipeline.tools.toolbox import Tool
from serving.scheduling.llm_slots import DraftBudget
from tests.pipeline.fakes import World, speak
from tests.pipeline.scenes import of, run_session, talkative
from tests.pipeline.scripted import AsksTool, Says, SlowTool, WordTts

pytestmark = pytest.mark.many

SILENCE, ONE, TWO = 0, 1000, 2000


class AsksAgain(AsksTool):
    """A model that calls the tool five times, one call after the other."""

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        self.asked.append(list(messages))
        if len([one for one in messages if one.role == "tool"]) < 5:
            yield ToolCall("call_1", "slow", {})
        else:
            yield TextDelta(self.afterwards)


async def one_turn(session: Session) -> None:
    await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 9000))


def said(events: list[SessionEvent]) -> str:
    return "".join(event.delta for event in of(OutputTextDelta, events))


@pytest.mark.parametrize(
    ("takes_s", "expected"),
    [
        (0.2, "It is done."),
        (3.0, "One moment, please. It is done."),
        (8.0, "One moment, please. It is taking a little longer. It is done."),
    ],
)
def test_fillers_are_spoken_during_a_slow_tool(takes_s: float, expected: str) -> None:
    world = World(llm=AsksTool())
    world.providers = [SlowTool(takes_s)]
    events = run_session(world, one_turn)
    assert said(events) == expected
    (done,) = of(ResponseDone, events)
    assert done.status == "completed"


def test_a_filler_for_a_tool_of_a_draft_comes_after_the_end_of_the_turn() -> None:
    """The tool runs from about 0.3 s to 4.8 s of a pause that ends the turn after 3 s."""
    world = World(llm=AsksTool())
    world.providers = [SlowTool(4.5, is_read_only=True)]
    settings = SessionSettings(turn_detection=TurnDetection(silence_ms=3000))
    events = run_session(world, one_turn, settings)
    assert said(events) == "One moment, please. It is done."


@pytest.mark.parametrize("takes_s", [1.4, 1.6])
def test_rounds_of_slow_tools_share_one_series_of_fillers(takes_s: float) -> None:
    world = World(llm=AsksAgain())
    world.providers = [SlowTool(takes_s)]

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 11_000))

    events = run_session(world, scenario)
    assert said(events) == "One moment, please. It is taking a little longer. It is done."


@pytest.mark.parametrize(
    ("afterwards", "expected"),
    [("", "Sorry, that did not work."), ("No luck today.", "No luck today.")],
)
def test_a_failed_tool_without_words_of_the_model_is_apologised_for(
    afterwards: str, expected: str
) -> None:
    world = World(llm=AsksTool(afterwards))
    world.providers = [SlowTool(0.1, error="no_such_lamp")]
    assert said(run_session(world, one_turn)) == expected


class Prefaces(AsksTool):
    """A model that announces its call and makes it, then says `then`, and calls again if `then` is
    not empty."""

    def __init__(self, then: str) -> None:
        super().__init__()
        self.then = then

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        calls = [one for one in messages if one.role == "tool"]
        if text := ("Let me do that.", self.then, "")[len(calls)]:
            yield TextDelta(text)
            yield ToolCall("call_1", "slow", {})


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("", "Let me do that. Sorry, that did not work."),
        (" Once more.", "Let me do that. Once more. Sorry, that did not work."),
    ],
)
def test_words_before_a_tool_failed_do_not_replace_the_apology(then: str, expected: str) -> None:
    world = World(llm=Prefaces(then))
    world.providers = [SlowTool(0.1, error="no_such_lamp")]
    assert said(run_session(world, one_turn)) == expected


class FailsFirst(SlowTool):
    """Two tools, of which `slow` fails at its first call."""

    def __init__(self) -> None:
        super().__init__(0.1)
        self.failed: set[str] = set()

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        return [ToolSpec(name, "", {"type": "object"}) for name in ("slow", "other")]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        has_failed = "slow" in self.failed
        self.failed.add("slow")
        return ToolOutcome({}, error=None if has_failed else "no_such_lamp")


class Calls(AsksTool):
    """A model that calls these tools, round by round, and then says nothing."""

    def __init__(self, *rounds: str) -> None:
        super().__init__("")
        self.rounds = rounds

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        number = len(self.asked)
        self.asked.append(list(messages))
        for index, name in enumerate("".join(self.rounds[number : number + 1]).split()):
            yield ToolCall(f"call_{index}", name, {})


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        (("slow", "slow"), ""),
        (("slow", "other"), "Sorry, that did not work."),
        (("slow slow",), "Sorry, that did not work."),
    ],
    ids=["it worked then", "another one worked", "one of two worked"],
)
def test_a_tool_that_works_at_its_second_call_needs_no_apology(
    rounds: tuple[str, ...], expected: str
) -> None:
    world = World(llm=Calls(*rounds), providers=[FailsFirst()], drafts=DraftBudget(0))
    assert said(run_session(world, one_turn)) == expected


@pytest.mark.parametrize(
    ("approve", "error", "expected"),
    [
        (True, "no_such_lamp", "Sorry, that did not work."),
        (True, None, ""),
        (False, None, ""),
    ],
    ids=["failed", "worked", "refused"],
)
def test_a_failed_tool_that_the_client_approved_is_apologised_for(
    approve: bool, error: str | None, expected: str
) -> None:
    spec = ToolSpec("slow", "Takes its time.", {"type": "object"})
    tool = ClientMcpTool(Tool(spec, SlowTool(0.1, error), "slow"), "house", "slow", True)
    decided = ApprovalDecision("mcpr_1", ToolCall("call_1", "slow", {}), tool, approve)

    async def scenario(session: Session) -> None:
        session.create_response(ResponseRequest(approved=(decided,)))
        await asyncio.sleep(2)

    assert said(run_session(World(llm=Says("")), scenario)) == expected


def test_a_tool_that_worked_needs_no_words_of_the_model() -> None:
    world = World(llm=AsksTool(""))
    world.providers = [SlowTool(0.1)]
    assert said(run_session(world, one_turn)) == ""


def test_an_empty_answer_of_the_model_is_replaced_by_a_sentence() -> None:
    events = run_session(World(llm=Says("")), one_turn)
    assert said(events) == "I have no answer to that."
    assert len(of(PlayoutStarted, events)) == 1
    assert [turn.status for turn in of(TurnTimeline, events)] == ["answered"]


def test_a_client_tool_that_worked_needs_no_words_of_the_model() -> None:
    async def scenario(session: Session) -> None:
        session.add_item(MessageItem("item_u", "user", (TextPart("hi"),)))
        session.add_item(FunctionCallItem("item_c", "call_1", "slow", "{}"))
        session.add_item(FunctionOutputItem("item_o", "call_1", "{}"))
        session.create_response(ResponseRequest())
        await asyncio.sleep(2)

    world = World(llm=AsksTool(""))
    events = run_session(world, scenario)
    assert [asked[-1].role for asked in world.llm.asked] == ["tool"]
    assert said(events) == ""


@pytest.mark.parametrize(
    ("settings", "request_"),
    [
        (SessionSettings(modality="text"), ResponseRequest()),
        (SessionSettings(), ResponseRequest(in_conversation=False)),
    ],
    ids=["written", "out of band"],
)
def test_an_empty_answer_stays_empty_in_text_and_out_of_band(
    settings: SessionSettings, request_: ResponseRequest
) -> None:
    async def scenario(session: Session) -> None:
        session.add_item(MessageItem("item_u", "user", (TextPart("hi"),)))
        session.create_response(request_)
        await asyncio.sleep(2)

    events = run_session(World(llm=Says("")), scenario, settings)
    assert said(events) == ""
    assert [done.status for done in of(ResponseDone, events)] == ["completed"]


def test_a_failing_model_is_apologised_for_by_voice() -> None:
    world = World()
    world.llm.fails = True
    events = run_session(world, one_turn)
    (done,) = of(ResponseDone, events)
    assert (done.status, done.error_code) == ("failed", "engine_failed")
    assert said(events) == "Sorry, that did not work."
    assert len(of(PlayoutStarted, events)) == 1


def test_a_failing_model_gives_no_apology_in_text() -> None:
    world = World()
    world.llm.fails = True

    async def scenario(session: Session) -> None:
        session.create_response(ResponseRequest())
        await asyncio.sleep(2)

    events = run_session(world, scenario, SessionSettings(modality="text"))
    assert said(events) == ""
    assert [done.status for done in of(ResponseDone, events)] == ["failed"]


def test_the_voice_reads_normalized_text_and_the_transcript_keeps_the_original() -> None:
    world = World(llm=Says("It is **20 °C** outside 😀, see [the map](https://example.com/x)."))
    world.tts = WordTts()
    events = run_session(world, one_turn)
    (item,) = [event.item for event in of(OutputItemDone, events)]
    assert isinstance(item, MessageItem)
    assert item.text == "It is **20 °C** outside 😀, see [the map](https://example.com/x)."
    read = " ".join(world.tts.read)
    assert "20 degrees Celsius" in read
    assert not set("*[]°😀") & set(read)


def test_an_interrupted_answer_is_cut_at_the_word_marks_of_the_voice() -> None:
    world = talkative()
    world.llm = Says("One **two** three four five six seven eight nine ten.")
    tts = world.tts = WordTts()
    tts.clause_ms = 3000

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1500), (TWO, 1200), (SILENCE, 4000))

    run_session(world, scenario)
    (conversation,) = world.conversations._conversations.values()
    messages = conversation.history.messages("")
    heard = next(message.text for message in messages if message.role == "assistant")
    assert heard.startswith("One **two** three")
    assert "ten" not in heard
