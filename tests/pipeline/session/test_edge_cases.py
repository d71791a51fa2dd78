"""Events at the wrong moment: nothing is lost, reported twice, or waited for in vain."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame
from core.conversation.events import (
    ErrorEvent,
    HypothesisChanged,
    OutputAudioDelta,
    OutputItemDone,
    OutputTextDelta,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ResponseCreated,
    ResponseDone,
    SessionEvent,
    SpeechStopped,
    TranscriptionCompleted,
    TurnTimeline,
)
from core.conversation.items import FunctionCallItem, MessageItem, TextPart
from core.errors import Conflict, EngineError, RequestError
from core.ports import ToolContext, ToolOutcome, ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from pipeline.playout.heard_text import HeardText
from pipeline.response.queue import MAX_WAITING
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.outbox import MAX_AHEAD
from pipeline.shared.settings import ResponseRequest, SessionSettings, TurnDetection
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.segmenter import LEAD_MS
from pipeline.user_turn.controller import MAX_HELD_MS
from pipeline.user_turn.speech_detection.endpointing import MAX_UTTERANCE_MS, EdgeKind, Endpointer
from pipeline.user_turn.speech_detection.speech_detector import SpeechDetector
from tests.loop import run_virtual
from tests.pipeline.fakes import (
    FRAME,
    Adder,
    Counts,
    EchoLlm,
    LevelAsr,
    LoudVad,
    World,
    collect,
    names,
    speak,
)
from tests.pipeline.scenes import ANSWER_TIME_MS, SILENCE, of, run_session

pytestmark = pytest.mark.many

PUSH_TO_TALK = SessionSettings(turn_detection=None)


def written(text: str, item_id: str = "item_a") -> MessageItem:
    return MessageItem(item_id, "user", (TextPart(text),))


def heard_answers(world: World) -> list[str]:
    """Returns the model's own earlier answers in its last prompt."""
    return [m.text for m in world.llm.asked[-1] if m.role == "assistant"]


# The user's utterances.


def test_an_answer_waits_while_the_user_speaks_again() -> None:
    world = World(asr=LevelAsr(delay_s=2.0))

    async def scenario(session: Session) -> None:
        await speak(session, (1000, 600), (SILENCE, 1600), (2000, 1500), (SILENCE, 5000))

    events = run_session(world, scenario)
    told = names(events)
    last = len(told) - 1 - told[::-1].index("TranscriptionCompleted")
    assert told.index("ResponseCreated") > last
    assert len(of(ResponseCreated, events)) == 1
    assert [m.text for m in world.llm.asked[0]] == ["one", "two"]
    assert [t.status for t in of(TurnTimeline, events)] == ["transcribed", "answered"]


def test_noise_after_a_question_delays_its_answer_but_does_not_prevent_it() -> None:
    world = World(asr=LevelAsr(delay_s=2.0))

    async def scenario(session: Session) -> None:
        await speak(session, (1000, 600), (SILENCE, 1600), (5000, 300), (SILENCE, 5000))

    events = run_session(world, scenario)
    assert [m.text for m in world.llm.asked[0]] == ["one"]
    assert sorted(t.status for t in of(TurnTimeline, events)) == ["answered", "rejected"]


def test_speech_across_a_switch_to_push_to_talk_is_one_utterance() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (1000, 400), (SILENCE, 200))
        session.configure(PUSH_TO_TALK)
        await speak(session, (2000, 400))
        session.commit_input()
        await speak(session, (SILENCE, 500))

    events = run_session(World(), scenario)
    assert [e.transcript for e in of(TranscriptionCompleted, events)] == ["one two"]
    assert names(events).count("SpeechStopped") == names(events).count("SpeechStarted") == 1


@pytest.mark.parametrize("pause_ms", [0, 100])
def test_a_commit_during_speech_ends_the_utterance_there(pause_ms: int) -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (1000, 600), (SILENCE, pause_ms), (1000, 400 - pause_ms))
        session.commit_input()
        await speak(session, (SILENCE, ANSWER_TIME_MS))

    events = run_session(World(), scenario)
    assert of(SpeechStopped, events)[0].audio_end_ms == 1000
    endpoint = of(TurnTimeline, events)[0].stages[0]
    assert endpoint.end_ms == 0


@pytest.mark.many  # samples: three minutes of speech
def test_push_to_talk_holds_long_speech_once_and_up_to_a_limit() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await speak(session, (1000, MAX_UTTERANCE_MS), (2000, 5000), (SILENCE, 100))
        session.commit_input()
        await speak(session, (SILENCE, 500), (3000, MAX_HELD_MS + 5000))
        session.clear_input()

    events = run_session(world, scenario, PUSH_TO_TALK)
    (transcribed,) = of(TranscriptionCompleted, events)
    assert transcribed.transcript == "one two"
    assert transcribed.audio_s == pytest.approx(65.1, abs=0.05)  # nothing twice
    assert [f.code for f in of(ErrorEvent, events)] == ["input_audio_buffer_full"]
    assert max(seconds for _, seconds in world.asr.decoded) <= 65.15 + LEAD_MS / 1000


def test_a_cut_at_the_longest_utterance_does_not_swallow_resumed_speech() -> None:
    endpointer = Endpointer()
    frames = MAX_UTTERANCE_MS // 20
    edges = [
        endpointer.push(float(not frames - 5 <= at < frames - 1), FRAME) for at in range(frames + 3)
    ]
    assert [e.kind for e in edges if e][1:] == [
        EdgeKind.CANDIDATE,
        EdgeKind.RESUMED,
        EdgeKind.ENDED,
    ]


def test_push_to_talk_never_ends_an_utterance_by_itself() -> None:
    hearing = SpeechDetector(LoudVad())
    hearing.configure(None)
    loud = AudioFrame(np.full(FRAME, 1000, np.int16), ASR_RATE_HZ, 0)
    heard = [h for _ in range(2 * MAX_UTTERANCE_MS // 20) for h in hearing.push(loud)]
    assert [h.edge.kind for h in heard if h.edge] == [EdgeKind.STARTED]
    assert sum(len(h.pcm) for h in heard if h.in_speech) == 2 * MAX_UTTERANCE_MS * 16


@pytest.mark.many  # moments
def test_no_partial_follows_the_end_of_its_utterance() -> None:
    for delay_ms in range(5, 200, 5):
        events = run_session(
            World(asr=LevelAsr(delay_ms / 1000)),
            lambda s: speak(s, (1000, 1210), (SILENCE, 1500)),
            SessionSettings(turn_detection=TurnDetection(silence_ms=200)),
        )
        stopped = events.index(of(SpeechStopped, events)[0])
        assert not of(HypothesisChanged, events[stopped:])


def test_the_recogniser_forgets_an_utterance_whose_session_ends() -> None:
    world = World(asr=LevelAsr(delay_s=5))

    async def scenario(session: Session) -> None:
        await speak(session, (1000, 600), (SILENCE, 700))

    events = run_session(world, scenario)
    assert world.asr.forgotten == [of(SpeechStopped, events)[0].item_id]


# Requests of the client.


def test_one_response_answers_all_committed_utterances() -> None:
    world = World(asr=LevelAsr(delay_s=0.5))

    async def scenario(session: Session) -> None:
        for level in (1000, 2000, 5000):
            await speak(session, (level, 200))
            session.commit_input()
        session.create_response(ResponseRequest())
        await speak(session, (SILENCE, ANSWER_TIME_MS))

    events = run_session(world, scenario, PUSH_TO_TALK)
    assert [m.text for m in world.llm.asked[0]] == ["one", "two"]
    assert [d.status for d in of(ResponseDone, events)] == ["completed"]


@pytest.mark.parametrize("has_audio", [False, True])
def test_a_response_cancelled_before_it_begins_is_reported_as_cancelled(
    has_audio: bool,
) -> None:
    world = World()

    async def scenario(session: Session) -> None:
        session.add_item(written("hello"))
        if has_audio:
            await speak(session, (1000, 400))
            session.commit_input()
        session.create_response(ResponseRequest())
        session.cancel_response()
        await asyncio.sleep(1)
        with pytest.raises(Conflict):
            session.cancel_response()

    events = run_session(world, scenario, PUSH_TO_TALK)
    assert [(d.status, d.reason) for d in of(ResponseDone, events)] == [
        ("cancelled", "client_cancelled")
    ]
    assert len(of(ResponseCreated, events)) == 1
    assert world.llm.asked == []


def test_a_later_response_uses_the_language_of_the_utterance() -> None:
    world = World(asr=LevelAsr(language="de"))
    spoken: list[tuple[str, str | None]] = []
    speak_as_before = world.tts.speak

    def speak_and_note(*args: object, language: str, voice: str | None, **kw: object) -> object:
        spoken.append((language, voice))
        return speak_as_before(*args, language=language, voice=voice, **kw)  # type: ignore[arg-type]

    world.tts.speak = speak_and_note  # type: ignore[method-assign, assignment]

    async def scenario(session: Session) -> None:
        await speak(session, (1000, 400))
        session.commit_input()
        await speak(session, (SILENCE, 500))
        session.create_response(ResponseRequest())
        await speak(session, (SILENCE, ANSWER_TIME_MS))
        assert session.say("es klingelt")
        await speak(session, (SILENCE, ANSWER_TIME_MS))

    run_session(world, scenario, replace(PUSH_TO_TALK, voice="high"))
    assert spoken == [("de", "tief"), ("de", "tief")], "its English voice speaks no German"


@pytest.mark.parametrize(
    ("heard", "wish", "voice"),
    [("de", "default", "tief"), ("en", "default", "low"), ("en", "high", "high")],
)
def test_the_language_of_the_utterance_chooses_the_voice(heard: str, wish: str, voice: str) -> None:
    world = World(asr=LevelAsr(language=heard))
    asked: list[str | None] = []
    speak_as_before = world.tts.speak

    def speak_and_note(*args: object, voice: str | None, **kw: object) -> object:
        asked.append(voice)
        return speak_as_before(*args, voice=voice, **kw)  # type: ignore[arg-type]

    world.tts.speak = speak_and_note  # type: ignore[method-assign, assignment]

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (1000, 600), (SILENCE, ANSWER_TIME_MS))

    run_session(world, scenario, SessionSettings(voice=wish))
    assert set(asked) == {voice}


def test_a_transcription_session_gets_no_announcements() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        assert not await world.conversations.announce(session.conversation_id, "ding dong")
        await speak(session, (SILENCE, 500))

    assert run_session(world, scenario, SessionSettings(answers=False)) == []


@pytest.mark.parametrize("arguments", ["", "not json", "[1]", "[" * 100_000])
def test_a_function_call_without_a_json_object_is_refused(arguments: str) -> None:
    async def scenario(session: Session) -> None:
        with pytest.raises(RequestError, match="JSON object") as caught:
            session.add_item(FunctionCallItem("item_c", "call_1", "f", arguments))
        assert caught.value.param == "item.arguments"

    assert run_session(World(), scenario) == []


class Caller(EchoLlm):
    """A model that calls tools without end."""

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        yield ToolCall(f"call_{len(messages)}", "add", {"a": 1, "b": 1})


def test_endless_tool_calls_fail_the_response() -> None:
    async def scenario(session: Session) -> None:
        session.add_item(written("hello"))
        session.create_response(ResponseRequest())
        await asyncio.sleep(5)

    (done,) = of(ResponseDone, run_session(World(llm=Caller()), scenario))
    assert (done.status, done.error_code) == ("failed", "engine_failed")
    assert "rounds of tools" in str(done.error_message)


class BreaksOff(EchoLlm):
    """A model that fails in the middle of a sentence."""

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        yield TextDelta("Once upon a time. There was")
        raise EngineError("llm", "echo", "lost")


def test_an_answer_that_breaks_off_ends_with_an_apology() -> None:
    async def scenario(session: Session) -> None:
        session.add_item(written("tell me a story"))
        session.create_response(ResponseRequest())
        await speak(session, (SILENCE, 20_000))

    events = run_session(World(llm=BreaksOff()), scenario)
    (done,) = of(ResponseDone, events)
    assert (done.status, done.error_code) == ("failed", "engine_failed")
    text = "".join(event.delta for event in of(OutputTextDelta, events))
    assert text == "Once upon a time. There was … Sorry, that did not work."
    assert of(PlayoutStopped, events)
    assert not of(PlayoutCleared, events)  # the sound made before the failure is played to its end


def test_all_waiting_announcements_are_said() -> None:
    async def scenario(session: Session) -> None:
        session.say("begin")
        await asyncio.sleep(0.05)
        for number in range(MAX_WAITING):
            session.say(f"ring {number}")
        await speak(session, (1000, 400), (SILENCE, 30_000))

    settings = SessionSettings(turn_detection=TurnDetection(interrupt_response=False))
    texts = [e.delta for e in of(OutputTextDelta, run_session(World(), scenario, settings))]
    assert [f"ring {n}" in texts for n in range(1, MAX_WAITING)] == [True] * (MAX_WAITING - 1)


def test_an_unanswered_commit_gets_no_response_when_turn_detection_returns() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await speak(session, (1000, 400))
        session.commit_input()
        await speak(session, (SILENCE, 500))
        session.configure(SessionSettings())
        await speak(session, (5000, 400), (SILENCE, 1600), (2000, 400), (SILENCE, 3000))

    events = run_session(world, scenario, PUSH_TO_TALK)
    assert [[m.text for m in asked] for asked in world.llm.asked] == [["one", "two"]]
    assert [t.status for t in of(TurnTimeline, events)] == ["transcribed", "rejected", "answered"]


class Refuser(Adder):
    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        raise RequestError("no such lamp", code="no_such_lamp")


def test_a_request_error_of_a_tool_becomes_its_result() -> None:
    async def main() -> None:
        toolbox = Toolbox([Refuser()], Counts())
        results = await toolbox.run([ToolCall("call_1", "add", {})], ToolContext("conv_1", "en"))
        assert results == ['{"error": "no_such_lamp", "message": "no such lamp"}']

    run_virtual(main())


# The words that were heard.


def test_an_unfinished_clause_counts_as_heard_only_in_part() -> None:
    spoken = HeardText()
    spoken.begin("one two three four", 0)
    assert spoken.text_until(300, 300) == "one"
    spoken.begin("five six seven eight", 2000)
    assert spoken.text_until(2500, 2500) == "one two three four five"
    spoken.end(2500)
    spoken.begin("never made", 2500)
    assert spoken.text_until(2500, 2500) == "one two three four five six seven eight"


def test_the_history_keeps_only_the_heard_part_of_cleared_output() -> None:
    world = World(llm=EchoLlm(ending=", and so on, and more of it, and more of it, and more"))
    world.llm.word_s = 0.2

    async def scenario(session: Session) -> None:
        session.add_item(written("hello"))
        session.create_response(ResponseRequest())
        await speak(session, (SILENCE, 1500))
        session.clear_output()
        await speak(session, (SILENCE, ANSWER_TIME_MS))
        session.add_item(written("what?", "item_b"))
        session.create_response(ResponseRequest())
        await speak(session, (SILENCE, 100))

    events = run_session(world, scenario)
    (heard,) = heard_answers(world)
    assert 0 < len(heard.split()) < 8
    item = of(OutputItemDone, events)[0].item
    assert isinstance(item, MessageItem)
    assert (item.text, item.status) == (heard, "incomplete")


def test_a_truncated_answer_stays_truncated_when_it_ends() -> None:
    world = World(llm=EchoLlm(ending=", and so on, and more of it, and more of it, and more"))
    world.llm.word_s = 0.2
    told: list[SessionEvent] = []

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        opened = sessions.open(SessionSettings(), paced_by="client")
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(collect(session, told))
            session.add_item(written("hello"))
            session.create_response(ResponseRequest())
            await asyncio.sleep(1.5)
            session.truncate(of(OutputAudioDelta, told)[0].item_id, 500)
            await asyncio.sleep(10)
            session.add_item(written("what?", "item_b"))
            session.create_response(ResponseRequest())
            await asyncio.sleep(0.1)

    run_virtual(main())
    assert heard_answers(world) == ["you"]


def test_an_answer_that_nobody_heard_is_reported_as_cancelled() -> None:
    async def scenario(session: Session) -> None:
        session.add_item(written("hello"))
        session.create_response(ResponseRequest())
        await asyncio.sleep(3)  # complete, but no frame was pulled
        session.clear_output()
        await asyncio.wait_for(session.settled(), 1)

    events = run_session(World(), scenario)
    assert [t.status for t in of(TurnTimeline, events)] == ["cancelled"]
    assert not of(PlayoutStarted, events)


def test_a_long_answer_does_not_overflow_a_slow_client() -> None:
    world = World(llm=EchoLlm(word_s=0))
    read: list[SessionEvent] = []

    async def slowly(session: Session) -> None:
        async for event in session.events:
            read.append(event)
            await asyncio.sleep(0.015)

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        opened = sessions.open(SessionSettings(), paced_by="client")
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(slowly(session))
            session.add_item(written("a long, long story. " * 100))
            session.create_response(ResponseRequest())
            await asyncio.sleep(600)
            assert not session.events.overflowed

    run_virtual(main())
    assert len(of(OutputAudioDelta, read)) > MAX_AHEAD
    assert of(ResponseDone, read)[0].status == "completed"


# The end of a session.


def test_a_drain_does_not_wait_for_a_session_that_has_ended() -> None:
    world = World()

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        opened = sessions.open(SessionSettings(), paced_by="server")
        async with asyncio.TaskGroup() as tasks, opened as session:
            await speak(session, (1000, 600))
            drain = tasks.create_task(sessions.drain(timeout_s=1000))
            await asyncio.sleep(1)
            assert not drain.done()

    assert run_virtual(main()) < 10
