"""Whole turns of a session with scripted engines, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame
from core.conversation.events import (
    ErrorEvent,
    HypothesisChanged,
    ItemTruncated,
    OutputAudioDelta,
    OutputItemDone,
    OutputTextDelta,
    PlayoutCleared,
    PlayoutStarted,
    ResponseCreated,
    ResponseDone,
    SessionEvent,
    TranscriptionCompleted,
    TranscriptionFailed,
    TurnTimeline,
)
from core.conversation.ids import new_id
from core.conversation.items import MessageItem, TextPart
from core.errors import Conflict, EngineError, OverloadedError, RequestError
from engines.base import TtsInfo, WordMark
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import ResponseRequest, SessionSettings, TurnDetection
from pipeline.user_turn.speech_detection.endpointing import CANDIDATE_MS
from tests.loop import run_virtual
from tests.pipeline.fakes import (
    FRAME,
    EchoLlm,
    LevelAsr,
    ToneTts,
    World,
    collect,
    names,
    speak,
)
from tests.pipeline.scenes import ANSWER_TIME_MS, SILENCE, of, one_turn, run_session

pytestmark = pytest.mark.many


def test_a_spoken_turn_has_its_events_in_order() -> None:
    events = run_session(World(), one_turn)
    told = [n for n in names(events) if n not in ("HypothesisChanged", "OutputTextDelta")]
    assert told == [
        "SpeechStarted",
        "SpeechStopped",
        "InputCommitted",
        "ItemAdded",
        "ItemDone",
        "TranscriptionCompleted",
        "ResponseCreated",
        "OutputItemAdded",
        "OutputItemDone",
        "ResponseDone",
        "PlayoutStarted",
        "PlayoutStopped",
        "TurnTimeline",
    ]
    assert of(TranscriptionCompleted, events)[0].transcript == "one two"
    assert "".join(e.delta for e in of(OutputTextDelta, events)) == "you said one two. "
    assert of(ResponseDone, events)[0].status == "completed"


def test_fed_audio_is_processed_at_once() -> None:
    seen: list[bool] = []

    async def scenario(session: Session) -> None:
        for _ in range(10):
            session.feed(AudioFrame(np.full(FRAME, 1000, np.int16), ASR_RATE_HZ, 0))
        seen.append(session._input.is_speaking)
        session.clear_input()
        seen.append(session._input.is_speaking)
        session.close()
        session.feed(AudioFrame(np.full(10 * FRAME, 1000, np.int16), ASR_RATE_HZ, 0))
        seen.append(session._input.is_speaking)

    assert "SpeechStarted" in names(run_session(World(), scenario))
    assert seen == [True, False, False]


def test_an_error_in_speech_detection_ends_the_session_but_not_its_caller() -> None:
    fed: list[str] = []

    async def scenario(session: Session) -> None:
        session.feed(AudioFrame(np.zeros(FRAME, np.int16), 8000, 0))
        fed.append("and went on")
        await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        run_session(World(), scenario)
    assert fed == ["and went on"]
    assert caught.group_contains(RequestError, match="audio of 8000 Hz")


def test_partial_transcripts_appear_during_speech_and_their_stable_part_only_grows() -> None:
    events = run_session(World(), one_turn)
    hypotheses = of(HypothesisChanged, events)
    assert len(hypotheses) >= 3
    assert "SpeechStopped" not in names(events[: events.index(hypotheses[2])])
    stables = [h.stable for h in hypotheses]
    assert all(after.startswith(before) for before, after in pairwise(stables))
    assert hypotheses[-1].stable.startswith("one")


def test_the_timeline_has_every_stage_without_gaps() -> None:
    turn = of(TurnTimeline, run_session(World(), one_turn))[0]
    assert [s.stage for s in turn.stages] == ["endpoint_wait", "asr", "llm", "tts", "playout"]
    wait, asr, llm, tts, playout = turn.stages
    assert wait.end_ms == pytest.approx(500, abs=1)
    assert asr.start_ms == pytest.approx(CANDIDATE_MS, abs=1)
    assert asr.end_ms == llm.start_ms
    assert llm.end_ms == tts.start_ms
    assert tts.end_ms < wait.end_ms
    assert [s.is_speculative for s in turn.stages] == [False, True, True, True, False]
    assert playout.start_ms == pytest.approx(turn.marks["gate_open"], abs=0.2)
    assert turn.response_latency_ms == playout.end_ms == turn.marks["playout_start"]
    assert turn.status == "answered"


def test_a_short_answer_is_ready_when_the_turn_ends() -> None:
    """Recognition, language model and voice take 300 + 20 + 10 ms within the 500 ms of silence."""
    turn = of(TurnTimeline, run_session(World(asr=LevelAsr(delay_s=0.3)), one_turn))[0]
    assert turn.response_latency_ms is not None
    assert turn.response_latency_ms <= 500 + 20


def test_resumed_speech_makes_the_prepared_decode_void() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (1000, 400), (SILENCE, 200), (2000, 400), (SILENCE, ANSWER_TIME_MS))

    events = run_session(World(), scenario)
    assert [e.transcript for e in of(TranscriptionCompleted, events)] == ["one two"]


def test_an_interruption_stops_the_voice_and_keeps_the_heard_part() -> None:
    world = World(llm=EchoLlm(ending=", and so on, and more of it, and more of it"))

    async def scenario(session: Session) -> None:
        await speak(session, (1000, 600), (SILENCE, 1600), (2000, 600), (SILENCE, ANSWER_TIME_MS))

    events = run_session(world, scenario)
    cleared = of(PlayoutCleared, events)[0]
    first, second = of(ResponseDone, events)
    assert cleared.response_id == of(PlayoutStarted, events)[0].response_id
    assert first.response_id == cleared.response_id
    item = first.output[0] if first.status == "cancelled" else None
    if item is None:  # the text was complete, and the item was truncated afterwards
        assert of(ItemTruncated, events)[0].audio_end_ms < 2000
        heard = next(m.text for m in world.llm.asked[-1] if m.role == "assistant")
    else:
        assert first.reason == "turn_detected"
        assert isinstance(item, MessageItem)
        heard = item.text
    full = "you said one, and so on, and more of it, and more of it"
    assert full.startswith(heard)
    assert heard != full
    assert second.status == "completed"
    assert [e.transcript for e in of(TranscriptionCompleted, events)] == ["one", "two"]


def test_noise_gets_no_response() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (5000, 600), (SILENCE, ANSWER_TIME_MS))

    events = run_session(World(), scenario)
    assert of(TranscriptionCompleted, events)[0].transcript == ""
    assert of(ResponseCreated, events) == []
    assert of(TurnTimeline, events)[0].status == "rejected"


def test_a_failing_recogniser_fails_the_turn_but_not_the_session() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        world.asr.broken = True
        await speak(session, (1000, 600), (SILENCE, 1700))
        world.asr.broken = False
        await speak(session, (2000, 600), (SILENCE, ANSWER_TIME_MS))

    events = run_session(world, scenario)
    assert of(ErrorEvent, events)[0].code == "engine_failed"
    (failed,) = of(TranscriptionFailed, events)
    assert failed.code == "engine_failed"
    assert world.asr.forgotten[0] == failed.item_id
    assert [e.transcript for e in of(TranscriptionCompleted, events)] == ["two"]
    apology = "answered"
    assert [t.status for t in of(TurnTimeline, events)] == ["failed", apology, "answered"]


@pytest.mark.parametrize("stage", ["llm", "tts"])
def test_a_failing_engine_fails_one_response_only(stage: str) -> None:
    world = World()
    broken = world.llm if stage == "llm" else world.tts

    async def scenario(session: Session) -> None:
        broken.fails = True
        await speak(session, (1000, 600), (SILENCE, 1500))
        broken.fails = False
        await speak(session, (2000, 600), (SILENCE, ANSWER_TIME_MS))

    first, second = of(ResponseDone, run_session(world, scenario))
    assert (first.status, first.error_code) == ("failed", "engine_failed")
    assert second.status == "completed"


def test_server_tools_run_without_output_items_for_the_client() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (4000, 600), (SILENCE, ANSWER_TIME_MS))

    world = World()
    events = run_session(world, scenario)
    assert "".join(e.delta for e in of(OutputTextDelta, events)) == "you said it is 4. "
    assert [m.role for m in world.llm.asked[-1]] == ["user", "assistant", "tool"]
    assert len(of(OutputItemDone, events)) == 1


def test_written_input_gets_a_written_response_and_one_at_a_time() -> None:
    async def scenario(session: Session) -> None:
        session.add_item(MessageItem("item_a", "user", (TextPart("hello"),)))
        session.create_response(ResponseRequest(modality="text"))
        with pytest.raises(Conflict) as caught:
            session.create_response(ResponseRequest())
        assert caught.value.code == "conversation_already_has_active_response"
        await asyncio.sleep(1)

    events = run_session(World(), scenario)
    item = of(OutputItemDone, events)[0].item
    assert isinstance(item, MessageItem)
    assert item.text == "you said hello. "
    assert not of(PlayoutStarted, events)
    assert of(TurnTimeline, events)[0].response_latency_ms == pytest.approx(20)


def test_cancelling_a_response_closes_every_generator() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        session.add_item(MessageItem("item_a", "user", (TextPart("a b c d e f, g h, i j k l"),)))
        session.create_response(ResponseRequest())
        await asyncio.sleep(0.21)
        with pytest.raises(Conflict):
            session.cancel_response("resp_other")
        session.cancel_response()
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        with pytest.raises(Conflict) as caught:
            session.cancel_response()
        assert caught.value.code == "response_cancel_not_active"

    done = of(ResponseDone, run_session(world, scenario))
    assert [(d.status, d.reason) for d in done] == [("cancelled", "client_cancelled")]
    assert world.llm.closed_early == 1
    assert world.tts.closed_early == 1


def test_in_push_to_talk_a_response_waits_for_the_transcript_of_the_commit() -> None:
    settings = SessionSettings(turn_detection=None)

    async def scenario(session: Session) -> None:
        with pytest.raises(RequestError) as caught:
            session.commit_input()
        assert caught.value.code == "input_audio_buffer_commit_empty"
        await speak(session, (1000, 400), (SILENCE, 800), (2000, 400))
        session.commit_input()
        session.create_response(ResponseRequest())
        await speak(session, (SILENCE, ANSWER_TIME_MS))

    events = run_session(World(), scenario, settings)
    assert "SpeechStarted" not in names(events)
    assert of(TranscriptionCompleted, events)[0].transcript == "one two"
    turn = of(TurnTimeline, events)[0]
    assert [s.stage for s in turn.stages] == ["endpoint_wait", "asr", "llm", "tts", "playout"]


def test_in_push_to_talk_a_response_to_silence_fails() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 400))
        session.commit_input()
        session.create_response(ResponseRequest())
        await asyncio.sleep(1)

    events = run_session(World(), scenario, SessionSettings(turn_detection=None))
    done = of(ResponseDone, events)[0]
    assert (done.status, done.error_code) == ("failed", "no_speech")


def test_a_transcription_session_creates_no_responses() -> None:
    events = run_session(World(), one_turn, SessionSettings(answers=False))
    assert of(TranscriptionCompleted, events)[0].transcript == "one two"
    assert "ResponseCreated" not in names(events)
    assert of(TurnTimeline, events)[0].status == "transcribed"


def test_client_paced_sound_comes_in_events_and_truncation_cuts_the_history() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await one_turn(session)
        item_id = next(e.item.id for e in told if isinstance(e, OutputItemDone))
        with pytest.raises(RequestError) as caught:
            session.truncate(item_id, 60_000)
        assert caught.value.param == "audio_end_ms"
        session.truncate(item_id, 500)
        await speak(session, (3000, 600), (SILENCE, ANSWER_TIME_MS))

    told: list[SessionEvent] = []

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        opened = sessions.open(SessionSettings(), paced_by="client")
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(collect(session, told))
            await scenario(session)

    run_virtual(main())
    samples = sum(len(e.pcm) for e in of(OutputAudioDelta, told))
    assert samples / 24_000 == pytest.approx(2.0, abs=0.05)
    assert [m.text for m in world.llm.asked[1] if m.role == "assistant"] == ["you said"]


@pytest.mark.parametrize("user_speaks", [False, True])
def test_an_announcement_during_a_turn_is_said_later(user_speaks: bool) -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await speak(session, (1000, 600), (SILENCE, 800))
        assert await world.conversations.announce(session.conversation_id, "ding dong")
        assert not await world.conversations.announce("conv_unknown", "ding dong")
        if user_speaks:
            await speak(session, (2000, 600))
        await speak(session, (SILENCE, 5000))

    events = run_session(world, scenario)
    texts = [e.delta for e in of(OutputTextDelta, events)]
    assert "ding dong" in texts
    done = [d.output[0] for d in of(ResponseDone, events) if d.status == "completed"]
    assert any(isinstance(i, MessageItem) and i.text == "ding dong" for i in done)


def test_a_conversation_continues_in_the_next_connection() -> None:
    world = World()

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        asked = SessionSettings(modality="text")
        async with sessions.open(asked, paced_by="client", conversation_id="hall") as session:
            session.add_item(MessageItem("item_1", "user", (TextPart("one"),)))
        async with sessions.open(asked, paced_by="client", conversation_id="hall") as session:
            session.add_item(MessageItem("item_2", "user", (TextPart("two"),)))
            session.create_response(ResponseRequest())
            await asyncio.sleep(1)

    run_virtual(main())
    assert [m.text for m in world.llm.asked[0]] == ["one", "two"]


def test_a_conversation_keeps_its_language() -> None:
    world = World()

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        conversation_id = None
        for language in (None, "de", None):
            settings = SessionSettings(modality="text", language=language)
            async with sessions.open(
                settings, paced_by="client", conversation_id=conversation_id
            ) as session:
                conversation_id = session.conversation_id
                session.add_item(MessageItem(new_id("item"), "user", (TextPart("one"),)))
                session.create_response(ResponseRequest())
                await asyncio.sleep(1)

    run_virtual(main())
    assert world.llm.languages_asked == ["en", "de", "de"]


def test_ten_parallel_sessions_do_not_mix() -> None:
    world = World()
    levels = [1000, 2000, 3000] * 3 + [1000]
    told: list[list[SessionEvent]] = [[] for _ in levels]

    async def one(sessions: Sessions, index: int) -> None:
        opened = sessions.open(SessionSettings(), paced_by="server")
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(collect(session, told[index]))
            await speak(session, (SILENCE, 20 * index), (levels[index], 600), (SILENCE, 3000))

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=len(levels))
        async with asyncio.TaskGroup() as tasks:
            for index in range(len(levels)):
                tasks.create_task(one(sessions, index))

    run_virtual(main())
    words = {1000: "one", 2000: "two", 3000: "three"}
    for level, events in zip(levels, told, strict=True):
        assert [e.transcript for e in of(TranscriptionCompleted, events)] == [words[level]]
        assert "".join(e.delta for e in of(OutputTextDelta, events)) == f"you said {words[level]}. "


def test_a_full_or_draining_server_refuses_sessions_and_says_when_to_retry() -> None:
    world = World()

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        with suppress(asyncio.CancelledError):
            async with sessions.open(SessionSettings(), paced_by="server") as session:
                with pytest.raises(OverloadedError) as full:
                    async with sessions.open(SessionSettings(), paced_by="server"):
                        pass
                assert (full.value.code, full.value.retry_after_s > 0) == ("server_full", True)
                async with asyncio.TaskGroup() as tasks:
                    drain = tasks.create_task(sessions.drain(timeout_s=10))
                    await asyncio.sleep(0.01)
                    with pytest.raises(OverloadedError) as draining:
                        async with sessions.open(SessionSettings(), paced_by="server"):
                            pass
                    assert draining.value.code == "draining"
                    async for _ in session.events:
                        pass  # ends when the drain closes the session
                    assert not drain.done()
                    tasks.create_task(asyncio.sleep(0))
                    raise asyncio.CancelledError

    run_virtual(main())


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (SessionSettings(language="xx"), "unsupported_language"),
        (SessionSettings(asr="nope"), "model_not_found"),
        (SessionSettings(llm="nope"), "model_not_found"),
        (SessionSettings(voice="nope"), "voice_not_found"),
        (SessionSettings(languages=("xx",)), "unsupported_language"),
        (SessionSettings(task="translate"), "unsupported_parameter"),
        (SessionSettings(prefix="<|en|>"), "unsupported_parameter"),
        (SessionSettings(beam_size=11), "invalid_value"),
    ],
)
def test_impossible_settings_are_refused_and_the_old_ones_stay(
    settings: SessionSettings, code: str
) -> None:
    async def scenario(session: Session) -> None:
        before = session.settings
        with pytest.raises(RequestError) as caught:
            session.configure(settings)
        assert caught.value.code == code
        assert session.settings is before

    run_session(World(), scenario)


def test_the_default_voice_speaks_in_place_of_one_that_was_deleted_since() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        world.tts.info = TtsInfo("tone", 24_000, {"en": ("high",)})
        await one_turn(session)

    settings = SessionSettings(voice="low", turn_detection=TurnDetection())
    run_session(world, scenario, settings)
    assert set(world.tts.voices_asked) == {"high"}


def test_an_unsupported_language_fails_the_transcription_and_names_the_allowed() -> None:
    events = run_session(
        World(), one_turn, SessionSettings(language="de", turn_detection=TurnDetection())
    )
    failed = of(TranscriptionFailed, events)[0]
    assert failed.code == "unsupported_language"
    assert "allowed: en" in failed.message


def test_a_language_set_during_speech_applies_to_the_next_utterance() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (1000, 400))
        session.configure(SessionSettings(language="de"))
        await speak(session, (SILENCE, 1000), (2000, 400), (SILENCE, 1000))

    events = run_session(World(), scenario)
    assert [event.transcript for event in of(TranscriptionCompleted, events)] == ["one"]
    assert len(of(TranscriptionFailed, events)) == 1


class BreakingTts(ToneTts):
    """A voice that fails at the second clause."""

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        async def first() -> AsyncGenerator[str, None]:
            async for clause in text:
                yield clause
                break

        async for frame in super().speak(first(), language=language):
            yield frame
        raise EngineError("tts", "tone", "fails on purpose")


def test_only_the_heard_part_is_remembered_if_the_voice_fails() -> None:
    world = World(tts=BreakingTts(4000))
    world.llm.ending = ". And that is the first sentence. And this is the second one."

    async def scenario(session: Session) -> None:
        await speak(session, (1000, 600), (SILENCE, 6000))

    (done,) = of(ResponseDone, run_session(world, scenario))
    assert done.status == "failed"
    (item,) = done.output
    assert isinstance(item, MessageItem)
    assert item.text in ("", "you", "you said")
