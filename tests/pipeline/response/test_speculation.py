"""Answers begun in the silence: there at once if the turn is over, gone without trace if not."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from core.events import (
    OutputTextDelta,
    PlayoutStarted,
    ResponseCreated,
    ResponseDone,
    TokenUsage,
    TranscriptionCompleted,
    TurnTimeline,
)
from core.items import FunctionCallItem, FunctionOutputItem, MessageItem, TextPart
from core.ports import ToolContext, ToolOutcome, ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from pipeline.response.planner import _asked_last
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings, TurnDetection
from serving.asr.scheduling import DecodePriority
from serving.llm_slots import DraftBudget
from tests.pipeline.fakes import EchoLlm, LevelAsr, ToneTts, World, speak
from tests.pipeline.scenes import counted, of, run_session
from tests.pipeline.scripted import ToolLlm, Watched

pytestmark = pytest.mark.many

SILENCE, ONE, TWO, FOUR, NOISE = 0, 1000, 2000, 4000, 5000


async def one_turn(session: Session) -> None:
    await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 3000))


def test_the_answer_is_there_when_the_silence_is_over() -> None:
    world = World()
    events = run_session(world, one_turn)
    (turn,) = of(TurnTimeline, events)
    assert turn.marks["tts_first_audio"] < turn.marks["endpoint"] <= turn.marks["gate_open"]
    assert turn.marks["playout_start"] - turn.marks["endpoint"] <= 20
    held_s = (turn.marks["gate_open"] - turn.marks["tts_first_audio"]) / 1000
    assert world.metrics.observed["earshot_gate_hold_seconds"] == [pytest.approx(held_s, abs=2e-4)]
    assert counted(world, "used") == 1
    assert len(world.llm.asked) == 1, "the draft is the answer, not a second one"


def test_an_answer_that_comes_after_the_silence_was_not_held() -> None:
    world = World(llm=EchoLlm(word_s=0.5))
    assert of(TurnTimeline, run_session(world, one_turn))[0].status == "answered"
    assert "earshot_gate_hold_seconds" not in world.metrics.observed


class TokenLlm(EchoLlm):
    """Says at the end what it took."""

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


def test_tokens_are_counted_whether_anybody_gets_the_answer() -> None:
    """The draft for `one` is complete when `two` makes it void."""
    world = World(llm=TokenLlm(word_s=0.01))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 300), (TWO, 400), (SILENCE, 4000))

    run_session(world, scenario)
    assert counted(world, "resumed") == 1
    assert world.metrics.counts["earshot_llm_tokens:input"] == 2 * 20
    assert world.metrics.counts["earshot_llm_tokens:output"] == 2 * 4


def test_nothing_is_told_before_the_turn_is_over() -> None:
    events = run_session(World(), one_turn)
    kinds = [type(event) for event in events]
    assert (
        kinds.index(TranscriptionCompleted)
        < kinds.index(ResponseCreated)
        < kinds.index(OutputTextDelta)
    )
    assert kinds.index(TranscriptionCompleted) < kinds.index(PlayoutStarted)


def test_speech_that_resumes_ends_the_draft_upstream() -> None:
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
def test_only_tools_that_change_nothing_run_before_the_turn_is_over(is_read_only: bool) -> None:
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
    history = next(iter(world.conversations._known.values())).history
    kinds = [type(item).__name__ for item in history.items]
    assert kinds == ["MessageItem", "FunctionCallItem", "FunctionOutputItem", "MessageItem"]


def test_a_tool_of_a_turn_that_was_not_over_leaves_no_trace() -> None:
    world = World(llm=ToolLlm())
    world.providers = [Watched(is_read_only=True)]

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 300), (TWO, 400), (SILENCE, 3000))

    run_session(world, scenario)
    history = next(iter(world.conversations._known.values())).history
    assert sum(isinstance(item, FunctionCallItem) for item in history.items) == 1


def test_noise_drafts_nothing() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await speak(session, (NOISE, 600), (SILENCE, 2000))

    run_session(world, scenario)
    assert world.llm.asked == []


@pytest.mark.parametrize("why", ["push_to_talk", "no_responses", "transcription", "loaded", "full"])
def test_nothing_is_drafted_that_nobody_wants_or_the_server_cannot_afford(why: str) -> None:
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


def test_settings_that_change_in_the_silence_change_the_answer() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 400))
        session.configure(SessionSettings(instructions="Be brief."))
        await speak(session, (SILENCE, 3000))

    events = run_session(world, scenario)
    assert [m.text for m in world.llm.asked[-1] if m.role == "system"] == ["Be brief."]
    assert (counted(world, "changed"), counted(world, "used")) == (1, 0)
    assert len(of(ResponseDone, events)) == 1


def test_a_draft_that_failed_is_made_anew() -> None:
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
def test_what_is_wasted_is_work_and_not_the_wait_for_the_end(
    word_s: float, clause_ms: int, worked_s: float
) -> None:
    """Three words, then 10 ms for each 100 ms of sound, in a pause of 2 s."""
    world = World(llm=EchoLlm(word_s), tts=ToneTts(clause_ms))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 2000), (TWO, 400), (SILENCE, 200))

    settings = SessionSettings(turn_detection=TurnDetection(silence_ms=4000))
    run_session(world, scenario, settings)
    assert wasted(world, "answer")[0] == pytest.approx(worked_s, abs=0.06)


def test_a_tool_that_waits_for_the_end_wastes_nothing() -> None:
    world = World(llm=ToolLlm(), providers=[Watched(is_read_only=False)])

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 2000), (TWO, 400), (SILENCE, 200))

    settings = SessionSettings(turn_detection=TurnDetection(silence_ms=4000))
    run_session(world, scenario, settings)
    assert wasted(world, "answer")[0] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize(("delay_s", "worked_s"), [(0.05, 0.05), (5.0, 0.36)])
def test_words_looked_for_in_vain_are_counted_too(delay_s: float, worked_s: float) -> None:
    """In the first pause, of 400 ms; the second is the end."""
    world = World(asr=LevelAsr(delay_s))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 400), (TWO, 400), (SILENCE, 700))
        await speak(session, (SILENCE, 8000))

    run_session(world, scenario)
    assert wasted(world, "recognition") == [pytest.approx(worked_s, abs=0.06)]


def test_an_incremental_recogniser_is_guessed_from_its_partials() -> None:
    world = World(asr=LevelAsr(0.02, is_incremental=True))
    (turn,) = of(TurnTimeline, run_session(world, one_turn))
    assert counted(world, "used") == 1
    assert turn.marks["llm_first_token"] < turn.marks["endpoint"]


@pytest.mark.parametrize("detection", [None, TurnDetection(create_response=False)])
def test_a_draft_that_nobody_will_ask_for_is_not_kept(detection: TurnDetection | None) -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 400))
        assert world.drafts.live == 1
        session.configure(SessionSettings(turn_detection=detection))
        await speak(session, (SILENCE, 2000))
        assert world.drafts.live == 0

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


def test_a_model_knows_of_a_tool_that_was_interrupted_while_it_ran() -> None:
    """Else it would call it again, for the words are still there."""
    world, tool = World(llm=ToolLlm()), Slow(is_read_only=False)
    world.providers = [tool]

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1000))
        assert len(tool.ran) == 1
        await speak(session, (ONE, 400), (TWO, 800), (SILENCE, 1000))

    events = run_session(world, scenario)
    assert of(ResponseDone, events)[0].status == "cancelled"
    history = next(iter(world.conversations._known.values())).history
    call = next(i for i in history.items if isinstance(i, FunctionCallItem))
    results = {i.call_id: i.output for i in history.items if isinstance(i, FunctionOutputItem)}
    assert "interrupted" in results[call.call_id]


def test_calls_whose_ids_a_model_repeats_keep_their_own_results() -> None:
    world = World(llm=CountingLlm())

    async def scenario(session: Session) -> None:
        for _ in range(2):
            await speak(session, (ONE, 600), (SILENCE, 4000))

    run_session(world, scenario)
    history = next(iter(world.conversations._known.values())).history
    told = [m.text for m in history.messages("") if m.role == "tool"]
    assert told == ['{"sum": 1}', '{"sum": 2}']


def test_the_model_is_asked_what_was_said_though_a_timer_rang_meanwhile() -> None:
    world = World(asr=LevelAsr(1.0))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 700))  # over, its words not known yet
        assert session.say("the timer rings, it rings")
        await speak(session, (SILENCE, 8000))

    events = run_session(world, scenario)
    assert [done.status for done in of(ResponseDone, events)] == ["completed", "completed"]
    assert [m.text for m in world.llm.asked[-1]] == ["the timer rings, it rings", "one"]


class CountingLlm(ToolLlm):
    """Calls `add` once per turn, always by the same id."""

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


def test_all_that_was_said_since_comes_after_what_we_said() -> None:
    question, more = (MessageItem(name, "user", (TextPart(name),)) for name in ("q", "m"))
    ours = MessageItem("timer", "assistant", (TextPart("it rings"),))
    assert _asked_last((question, more, ours), "q") == (ours, question, more)
    assert _asked_last((question, ours), None) == (question, ours)
    call = FunctionCallItem("c", "call_1", "add", "{}")
    assert _asked_last((question, call, ours), "q") == (question, call, ours)
