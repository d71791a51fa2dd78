"""A session that waits for a wake word: what it ignores before it, and when it sleeps again."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.conversation.events import (
    ResponseDone,
    SpeechStarted,
    TranscriptionCompleted,
    WakeStateChanged,
)
from core.conversation.items import MessageItem, TextPart
from core.errors import RequestError
from engines.base.wake import find_wake_word
from pipeline.session.session import Session
from pipeline.shared.settings import PlayoutPacing, ResponseRequest, SessionSettings, TurnDetection
from pipeline.user_turn.wake_word import FOLLOW_UP_S, WakeState
from tests.pipeline.fakes import ToneTts, speak
from tests.pipeline.scenes import of, run_session
from tests.pipeline.wakeful import NAME, WORD_LEVEL, LevelWakes, WakefulWorld

pytestmark = pytest.mark.many


ASKED = SessionSettings(wake_word=NAME)
FOLLOW_UP_MS = round(1000 * FOLLOW_UP_S)
ANSWER_MS = 2000


def awake(events: list[Any]) -> list[bool]:
    return [event.is_awake for event in of(WakeStateChanged, events)]


# The decision alone.


def test_it_sleeps_until_the_wake_word_and_again_after_silence() -> None:
    attention = WakeState()
    assert attention.update_asleep(0, is_busy=True)
    attention.wake(10)
    assert not attention.update_asleep(10 + FOLLOW_UP_S - 0.1, is_busy=False)
    assert attention.update_asleep(10 + FOLLOW_UP_S, is_busy=False)
    assert attention.update_asleep(11, is_busy=False)  # only the word wakes it


def test_a_heard_answer_restarts_the_follow_up_time() -> None:
    attention = WakeState()
    attention.wake(0)
    attention.extend(30)
    assert not attention.update_asleep(30 + FOLLOW_UP_S - 0.1, is_busy=False)
    assert attention.update_asleep(30 + FOLLOW_UP_S, is_busy=False)


def test_it_stays_awake_while_an_answer_plays() -> None:
    attention = WakeState()
    attention.wake(0)
    attention.extend(5)
    assert not attention.update_asleep(60, is_busy=False, answered_until=60)
    assert not attention.update_asleep(14, is_busy=False, answered_until=7)
    assert attention.update_asleep(15, is_busy=False, answered_until=7)


def test_an_answer_does_not_wake_it_or_shorten_the_follow_up_time() -> None:
    attention = WakeState()
    attention.extend(5)
    assert attention.update_asleep(5, is_busy=False)
    attention.wake(10)
    attention.extend(9)
    assert not attention.update_asleep(10 + FOLLOW_UP_S - 0.1, is_busy=False)


def test_it_stays_awake_during_speech_but_noise_adds_no_time() -> None:
    attention = WakeState()
    attention.wake(0)
    assert not attention.update_asleep(FOLLOW_UP_S + 5, is_busy=True)
    assert attention.update_asleep(FOLLOW_UP_S + 5.02, is_busy=False)


def test_an_unknown_wake_word_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        RequestError, match=r"'alexa' is not known; these are: computer, robot"
    ) as e:
        find_wake_word(LevelWakes(), "alexa")
    assert (e.value.code, e.value.param) == ("invalid_value", "earshot.wake_word")
    with pytest.raises(RequestError, match="this server has no wake words"):
        find_wake_word(None, "alexa")
    assert find_wake_word(None, "") is None


# Whole sessions.


def test_before_the_wake_word_nothing_is_recognised_or_traced() -> None:
    world = WakefulWorld()

    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (1000, 800), (0, 1000), (2000, 600), (0, 600))

    events = run_session(world, scene, ASKED)
    assert [type(event) for event in events] == [WakeStateChanged]
    assert awake(events) == [False]
    assert world.asr.asked == []
    assert world.kept_levels() == {0}


def test_speech_after_the_wake_word_is_answered() -> None:
    world = WakefulWorld()

    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (2000, 600), (WORD_LEVEL, 20))
        await speak(session, (0, 200), (1000, 600), (0, ANSWER_MS))

    events = run_session(world, scene, ASKED)
    assert [event.transcript for event in of(TranscriptionCompleted, events)] == ["one"]
    assert world.loudest() == 1000
    assert world.kept_levels() == {0, 1000}
    [done] = of(ResponseDone, events)
    assert done.status == "completed"
    [started] = of(SpeechStarted, events)
    assert started.audio_start_ms == pytest.approx(1020 - 300, abs=20)  # in the client's own time


@pytest.mark.parametrize("late_ms", [0, 60, 160])
def test_speech_directly_after_the_wake_word_is_recognised_from_its_start(late_ms: int) -> None:
    world = WakefulWorld(late_ms=late_ms)

    async def scene(session: Session) -> None:
        for _ in range(2):  # the second time at the client's own time, too
            await speak(session, (0, 400), (WORD_LEVEL, 20), (1000, 600), (0, 60_000))

    events = run_session(world, scene, ASKED)
    assert awake(events) == [False, True, False, True, False]
    last = {item.utterance: item.pcm for _, _, item in world.asr.asked}
    assert [int(np.count_nonzero(pcm)) for pcm in last.values()] == [600 * 16] * 2
    assert world.loudest() == 1000
    starts = [event.audio_start_ms for event in of(SpeechStarted, events)]
    assert starts[0] == pytest.approx(420 - 300, abs=30)
    assert starts[1] - starts[0] == 400 + 20 + 600 + 60_000


def test_audio_from_before_the_wake_word_is_turned_off_is_not_recognised() -> None:
    world = WakefulWorld()

    async def scene(session: Session) -> None:
        await speak(session, (0, 1000), (2000, 100))
        session.configure(SessionSettings())
        await speak(session, (1000, 600), (0, 1000))

    events = run_session(world, scene, ASKED)
    assert world.loudest() == 1000
    [started] = of(SpeechStarted, events)
    assert started.audio_start_ms == pytest.approx(1100 - 300, abs=30)


@pytest.mark.parametrize("paced_by", ["server", "client"])
def test_after_an_answer_it_stays_awake_for_the_follow_up_time(paced_by: PlayoutPacing) -> None:
    world = WakefulWorld()

    async def scene(session: Session) -> None:
        await speak(session, (WORD_LEVEL, 20), (0, 200), (1000, 600), (0, ANSWER_MS))
        await speak(session, (0, FOLLOW_UP_MS - 2500), (2000, 600), (0, ANSWER_MS))
        await speak(session, (0, FOLLOW_UP_MS), (3000, 600), (0, ANSWER_MS))

    events = run_session(world, scene, ASKED, paced_by)
    assert [event.transcript for event in of(TranscriptionCompleted, events)] == ["one", "two"]
    assert awake(events) == [False, True, False]
    assert world.loudest() == 2000


def test_a_truncated_answer_adds_no_time_for_its_rest() -> None:
    world = WakefulWorld(tts=ToneTts(clause_ms=30_000))

    async def scene(session: Session) -> None:
        await speak(session, (WORD_LEVEL, 20), (0, 200), (1000, 600), (0, 6000))
        session.truncate(session._conversation.history.items[-1].id, 500)
        await speak(session, (0, FOLLOW_UP_MS + 500), (2000, 600), (0, 1000))

    events = run_session(world, scene, ASKED, "client")
    assert world.loudest() == 1000
    assert awake(events) == [False, True, False]


def test_a_cleared_answer_is_followed_by_the_whole_follow_up_time() -> None:
    world = WakefulWorld(tts=ToneTts(clause_ms=10_000))

    async def scene(session: Session) -> None:
        await speak(session, (WORD_LEVEL, 20), (0, 200), (1000, 600), (0, 9500))
        session.clear_output()
        await speak(session, (0, FOLLOW_UP_MS - 500), (2000, 600), (0, ANSWER_MS))

    events = run_session(world, scene, ASKED, "server")
    assert [event.transcript for event in of(TranscriptionCompleted, events)] == ["one", "two"]
    assert awake(events) == [False, True]


@pytest.mark.parametrize(("idle_timeout_ms", "answers"), [(5000, 3), (10_000, 1)])
def test_idle_timeouts_do_not_keep_the_session_awake(idle_timeout_ms: int, answers: int) -> None:
    """After the first idle timeout there is time to reply; a sleeping session has none."""

    async def scene(session: Session) -> None:
        await speak(session, (WORD_LEVEL, 20), (0, 200), (1000, 600), (0, 60_000))

    detection = TurnDetection(idle_timeout_ms=idle_timeout_ms)
    events = run_session(WakefulWorld(), scene, replace(ASKED, turn_detection=detection))
    assert awake(events) == [False, True, False]
    assert len(of(ResponseDone, events)) == answers


def test_a_transcription_session_stays_awake_for_a_while_after_words() -> None:
    async def scene(session: Session) -> None:
        await speak(session, (WORD_LEVEL, 20), (0, FOLLOW_UP_MS - 2000), (1000, 600), (0, 2000))
        await speak(session, (2000, 600), (0, FOLLOW_UP_MS - 2000), (5000, 600), (0, 3000))
        await speak(session, (3000, 600), (0, 1000))  # the noise between them added no time

    events = run_session(WakefulWorld(), scene, replace(ASKED, answers=False))
    words = [event.transcript for event in of(TranscriptionCompleted, events) if event.transcript]
    assert words == ["one", "two"]
    assert awake(events) == [False, True, False]


def test_speech_longer_than_the_follow_up_time_is_recognised_whole() -> None:
    async def scene(session: Session) -> None:
        await speak(session, (WORD_LEVEL, 20), (0, 200), (1000, FOLLOW_UP_MS + 2000), (0, 600))

    events = run_session(WakefulWorld(), scene, ASKED)
    assert [event.transcript for event in of(TranscriptionCompleted, events)] == ["one"]
    assert awake(events) == [False, True]  # the answer is being spoken


def test_the_wake_word_alone_keeps_it_awake_for_a_while() -> None:
    async def scene(session: Session) -> None:
        for _ in range(2):
            await speak(session, (WORD_LEVEL, 20), (0, FOLLOW_UP_MS + 100))

    events = run_session(WakefulWorld(), scene, ASKED)
    assert awake(events) == [False, True, False, True, False]


def test_a_written_question_is_answered_without_waking_it() -> None:
    world = WakefulWorld()

    async def scene(session: Session) -> None:
        session.add_item(MessageItem("item_u", "user", (TextPart("hi"),)))
        session.create_response(ResponseRequest())
        await speak(session, (0, ANSWER_MS), (1000, 600), (0, 1000))

    events = run_session(world, scene, ASKED)
    assert len(of(ResponseDone, events)) == 1
    assert awake(events) == [False]
    assert world.asr.asked == []


def test_a_sleeping_session_has_nothing_to_commit() -> None:
    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600))
        with pytest.raises(
            RequestError, match="until the wake word 'computer' is detected"
        ) as caught:
            session.commit_input()
        assert caught.value.code == "input_audio_buffer_commit_empty"
        await speak(session, (WORD_LEVEL, 20), (1000, 600))
        session.commit_input()
        await speak(session, (0, ANSWER_MS))

    events = run_session(WakefulWorld(), scene, ASKED)
    assert [event.transcript for event in of(TranscriptionCompleted, events)] == ["one"]


def test_push_to_talk_needs_no_wake_word() -> None:
    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 200))
        session.commit_input()
        await speak(session, (0, 1000))

    events = run_session(WakefulWorld(), scene, replace(ASKED, turn_detection=None))
    assert [event.transcript for event in of(TranscriptionCompleted, events)] == ["one"]
    assert of(WakeStateChanged, events) == []


def test_the_wake_word_can_be_set_changed_and_removed() -> None:
    world = WakefulWorld()

    async def scene(session: Session) -> None:
        await speak(session, (1000, 600), (0, ANSWER_MS))
        session.configure(ASKED)
        await speak(session, (2000, 600), (0, ANSWER_MS), (WORD_LEVEL, 20), (0, 100))
        session.configure(replace(ASKED, instructions="be brief"))  # stays awake
        session.configure(replace(ASKED, wake_word="robot"))
        await speak(session, (3000, 600), (0, ANSWER_MS))
        session.configure(SessionSettings())
        await speak(session, (1000, 600), (0, ANSWER_MS))

    events = run_session(world, scene, SessionSettings())
    told = [(one.word, one.phrase, one.is_awake) for one in of(WakeStateChanged, events)]
    assert told == [
        ("computer", "Computer", False),
        ("computer", "Computer", True),
        ("computer", "Computer", True),
        ("robot", "Robot", False),
        ("", "", True),
    ]
    assert [event.transcript for event in of(TranscriptionCompleted, events)] == ["one", "one"]


def test_a_repeated_setting_reports_the_wake_state_again() -> None:
    async def scene(session: Session) -> None:
        await speak(session, (0, 200))
        session.configure(ASKED)
        await speak(session, (WORD_LEVEL, 20), (0, 200))
        session.configure(ASKED)

    assert awake(run_session(WakefulWorld(), scene, ASKED)) == [False, False, True, True]


def test_a_session_refuses_an_unknown_wake_word_and_keeps_its_own() -> None:
    async def scene(session: Session) -> None:
        with pytest.raises(RequestError, match="'hal' is not known"):
            session.configure(replace(ASKED, wake_word="hal"))
        await speak(session, (WORD_LEVEL, 20), (1000, 600), (0, ANSWER_MS))

    events = run_session(WakefulWorld(), scene, ASKED)
    assert len(of(TranscriptionCompleted, events)) == 1
