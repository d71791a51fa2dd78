"""Drafts of answers begun in a pause are ready if the turn is over, and leave no trace if it is
not."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from core.conversation.events import (
    OutputTextDelta,
    PlayoutStarted,
    ResponseCreated,
    ResponseDone,
    TranscriptionCompleted,
    TurnTimeline,
)
from core.conversation.items import FunctionCallItem, FunctionOutputItem, MessageItem, TextPart
from core.conversation.usage import TokenUsage
from core.ports import ToolContext, ToolOutcome, ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from pipeline.response.planner import _user_message_last
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings, TurnDetection
from serving.asr.scheduling import DecodePriority
from serving.scheduling.llm_slots import DraftBudget
from tests.pipeline.fakes import EchoLlm, LevelAsr, ToneTts, World, speak
from tests.pipeline.scenes import counted, of, run_session
from tests.pipeline.scripted import ToolLlm, Watched

pytestmark = pytest.mark.many

SILENCE, ONE, TWO, FOUR, NOISE = 0, 1000, 2000, 4000, 5000


async def one_turn(session: Session) -> None:
    await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 3000))


def test_a_draft_is_played_as_soon_as_the_turn_ends() -> None:
    world = World()
    events = run_session(world, one_turn)
    (turn,) = of(TurnTimeline, events)
    assert turn.marks["tts_first_audio"] < turn.marks["endpoint"] <= turn.marks["gate_open"]
    assert turn.marks["playout_start"] - turn.marks["endpoint"] <= 20
    held_s = (turn.marks["gate_open"] - turn.marks["tts_first_audio"]) / 1000
    assert world.metrics.observed["earshot_gate_hold_seconds"] == [pytest.approx(held_s, abs=2e-4)]
    assert counted(world, "used") == 1
    assert len(world.llm.asked) == 1, "the draft is the answer, not a second one"


def test_a_slow_draft_reports_no_hold_time() -> None:
    world = World(llm=EchoLlm(word_s=0.5))
    assert of(TurnTimeline, run_session(world, one_turn))[0].status == "answered"
    assert "earshot_gate_hold_seconds" not in world.metrics.observed


class TokenLlm(EchoLlm):
    """A model that reports its token usage at the end."""

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[Any, None]:
        replies = super().reply(messages, tools, language=language, options=options)
        async with aclosing(replies):
            async for delta in replies:
                yield delta
        yield TokenUsage(input_tokens=20, output_tokens=4)


def test_tokens_of_dropped_drafts_are_counted() -> None:
    """The draft for `one` is complete when `two` makes it void."""
    world = World(llm=TokenLlm(word_s=0.01))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 300), (TWO, 400), (SILENCE, 4000))

    run_session(world, scenario)
    assert counted(world, "resumed") == 1
    assert world.metrics.counts["earshot_llm_tokens:input"] == 2 * 20
    assert world.metrics.counts["earshot_llm_tokens:output"] == 2 * 4


def test_response_events_follow_the_completed_transcript() -> None:
    events = run_session(World(), one_turn)
    kinds = [type(event) for event in events]
    assert (
        kinds.index(TranscriptionCompleted)
        < kinds.index(ResponseCreated)
        < kinds.index(OutputTextDelta)
    )
    assert kinds.index(TranscriptionCompleted) < kinds.index(PlayoutStarted)


def test_resumed_speech_cancels_the_draft_and_its_model_request() -> None:
    world = World(llm=EchoLlm(word_s=0.2))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 300), (TWO, 400), (SILENCE, 4000))

    events = run_session(world, scenario)
    assert [e.transcript for e in of(TranscriptionCompleted, events)] == ["one two"]
    assert (counted(world, "resumed"), counted(world, "used")) == (1, 1)
    assert world.llm.closed_early == 1
    (done,) = of(ResponseDone, events)
    assert done.status == "completed"
    assert "earshot_speculation_wasted_seconds" in world.metrics.observed


@pytest.mark.parametrize("is_read_only", [True, False])
def test_only_read_only_tools_run_before_the_end_of_the_turn(is_read_only: bool) -> None:
    world, tool = World(llm=ToolLlm()), Watched(is_read_only=is_read_only)
    world.providers = [tool]
    ended: list[float] = []

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 400))
        assert bool(tool.ran) == is_read_only
        ended.append(asyncio.get_running_loop().time())
        await speak(session, (SILENCE, 3000))

    events = run_session(world, scenario)
    assert len(tool.ran) == 1
    assert (tool.ran[0] < ended[0]) == is_read_only
    (done,) = of(ResponseDone, events)
    assert done.status == "completed"
    history = next(iter(world.conversations._conversations.values())).history
    kinds = [type(item).__name__ for item in history.items]
    assert kinds == ["MessageItem", "FunctionCallItem", "FunctionOutputItem", "MessageItem"]


def test_a_tool_call_of_a_dropped_draft_leaves_no_history() -> None:
    world = World(llm=ToolLlm())
    world.providers = [Watched(is_read_only=True)]

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 300), (TWO, 400), (SILENCE, 3000))

    run_session(world, scenario)
    history = next(iter(world.conversations._conversations.values())).history
    assert sum(isinstance(item, FunctionCallItem) for item in history.items) == 1


def test_noise_starts_no_draft() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await speak(session, (NOISE, 600), (SILENCE, 2000))

    run_session(world, scenario)
    assert world.llm.asked == []


@pytest.mark.parametrize("why", ["push_to_talk", "no_responses", "transcription", "loaded", "full"])
def test_no_draft_starts_without_responses_or_without_capacity(why: str) -> None:
    world = World()
    if why == "loaded":
        world.asr.full_for = frozenset({DecodePriority.SPECULATIVE})
    if why == "full":
        world.drafts = DraftBudget(limit=0)
    settings = {
        "push_to_talk": SessionSettings(turn_detection=None),
        "no_responses": SessionSettings(turn_detection=TurnDetection(create_response=False)),
        "transcription": SessionSettings(answers=False),
    }.get(why, SessionSettings())

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 400))
        assert world.llm.asked == []
        await speak(session, (SILENCE, 2000))

    events = run_session(world, scenario, settings)
    answered = why in ("loaded", "full")
    assert [done.status for done in of(ResponseDone, events)] == ["completed"] * answered


def test_settings_that_change_during_a_draft_make_it_void() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 400))
        session.configure(SessionSettings(instructions="Be brief."))
        await speak(session, (SILENCE, 3000))

    events = run_session(world, scenario)
    assert [m.text for m in world.llm.asked[-1] if m.role == "system"] == ["Be brief."]
    assert (counted(world, "changed"), counted(world, "used")) == (1, 0)
    assert len(of(ResponseDone, events)) == 1


def test_a_failed_draft_is_replaced_by_a_new_response() -> None:
    world = World()
    world.llm.fails = True

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 400))
        world.llm.fails = False
        await speak(session, (SILENCE, 3000))

    (done,) = of(ResponseDone, run_session(world, scenario))
    assert done.status == "completed"
    assert (counted(world, "failed"), counted(world, "changed")) == (1, 0)


def wasted(world: World, work: str) -> list[float]:
    return world.metrics.labelled.get(f"earshot_speculation_wasted_seconds:{work}", [])


@pytest.mark.parametrize(
    ("word_s", "clause_ms", "worked_s"),
    [
        pytest.param(0.1, 1000, 0.4, id="written, and its first clause spoken"),
        pytest.param(0.001, 6000, 0.323, id="a voice that nobody hears stops with what is held"),
        pytest.param(5.0, 1000, 1.89, id="speech comes while it is written"),
    ],
)
def test_wasted_time_counts_work_but_not_waiting_for_the_end(
    word_s: float, clause_ms: int, worked_s: float
) -> None:
    """The draft takes three words, then 10 ms for each 100 ms of sound, in a pause of 2 s."""
    world = World(llm=EchoLlm(word_s), tts=ToneTts(clause_ms))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 2000), (TWO, 400), (SILENCE, 200))

    settings = SessionSettings(turn_detection=TurnDetection(silence_ms=4000))
    run_session(world, scenario, settings)
    assert wasted(world, "answer")[0] == pytest.approx(worked_s, abs=0.06)


def test_a_tool_that_waits_for_the_end_of_the_turn_wastes_no_time() -> None:
    world = World(llm=ToolLlm(), providers=[Watched(is_read_only=False)])

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 2000), (TWO, 400), (SILENCE, 200))

    settings = SessionSettings(turn_detection=TurnDetection(silence_ms=4000))
    run_session(world, scenario, settings)
    assert wasted(world, "answer")[0] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize(("delay_s", "worked_s"), [(0.05, 0.05), (5.0, 0.36)])
def test_wasted_decodes_are_counted(delay_s: float, worked_s: float) -> None:
    """The decode in the first pause, of 400 ms, is wasted; the second pause ends the turn."""
    world = World(asr=LevelAsr(delay_s))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 400), (TWO, 400), (SILENCE, 700))
        await speak(session, (SILENCE, 8000))

    run_session(world, scenario)
    assert wasted(world, "recognition") == [pytest.approx(worked_s, abs=0.06)]


def test_a_draft_with_an_incremental_recogniser_uses_its_partials() -> None:
    world = World(asr=LevelAsr(0.02, is_incremental=True))
    (turn,) = of(TurnTimeline, run_session(world, one_turn))
    assert counted(world, "used") == 1
    assert turn.marks["llm_first_token"] < turn.marks["endpoint"]


@pytest.mark.parametrize("detection", [None, TurnDetection(create_response=False)])
def test_a_draft_is_dropped_when_responses_are_turned_off(detection: TurnDetection | None) -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 400))
        assert world.drafts.count == 1
        session.configure(SessionSettings(turn_detection=detection))
        await speak(session, (SILENCE, 2000))
        assert world.drafts.count == 0

    run_session(world, scenario)
    assert counted(world, "changed") == 1


def test_an_answer_that_no_voice_can_speak_is_not_drafted() -> None:
    world = World(asr=LevelAsr(language="fr"))
    run_session(world, one_turn)
    assert world.metrics.counts.get("earshot_speculation", 0) == 0


class Slow(Watched):
    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        outcome = await super().call(name, arguments, context)
        await asyncio.sleep(5)
        return outcome


def test_a_tool_call_interrupted_while_it_runs_stays_in_the_history() -> None:
    """Otherwise the model would call it again, because the question is still in the history."""
    world, tool = World(llm=ToolLlm()), Slow(is_read_only=False)
    world.providers = [tool]

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1000))
        assert len(tool.ran) == 1
        await speak(session, (ONE, 400), (TWO, 800), (SILENCE, 1000))

    events = run_session(world, scenario)
    assert of(ResponseDone, events)[0].status == "cancelled"
    history = next(iter(world.conversations._conversations.values())).history
    call = next(i for i in history.items if isinstance(i, FunctionCallItem))
    results = {i.call_id: i.output for i in history.items if isinstance(i, FunctionOutputItem)}
    assert "interrupted" in results[call.call_id]


def test_repeated_call_ids_of_a_model_keep_their_own_results() -> None:
    world = World(llm=CountingLlm())

    async def scenario(session: Session) -> None:
        for _ in range(2):
            await speak(session, (ONE, 600), (SILENCE, 4000))

    run_session(world, scenario)
    history = next(iter(world.conversations._conversations.values())).history
    told = [m.text for m in history.messages("") if m.role == "tool"]
    assert told == ['{"sum": 1}', '{"sum": 2}']


def test_the_question_comes_last_although_an_announcement_came_after_it() -> None:
    world = World(asr=LevelAsr(1.0))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 700))  # turn over, not transcribed yet
        assert session.say("the timer rings, it rings")
        await speak(session, (SILENCE, 8000))

    events = run_session(world, scenario)
    assert [done.status for done in of(ResponseDone, events)] == ["completed", "completed"]
    assert [m.text for m in world.llm.asked[-1]] == ["the timer rings, it rings", "one"]


class CountingLlm(ToolLlm):
    """A model that calls `add` once per turn, always with the same id."""

    turns = 0

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        if messages[-1].role == "tool":
            yield TextDelta("Done.")
            return
        self.turns += 1
        yield ToolCall("call_1", "add", {"a": 0, "b": self.turns})


def test_own_items_after_the_question_move_before_it() -> None:
    question, more = (MessageItem(name, "user", (TextPart(name),)) for name in ("q", "m"))
    ours = MessageItem("timer", "assistant", (TextPart("it rings"),))
    assert _user_message_last((question, more, ours), "q") == (ours, question, more)
    assert _user_message_last((question, ours), None) == (question, ours)
    call = FunctionCallItem("c", "call_1", "add", "{}")
    assert _user_message_last((question, call, ours), "q") == (question, call, ours)
