"""The policy `wake_word`: while an answer sounds, only a wake word or a stop word ends it."""

from dataclasses import replace
from typing import Any

import pytest

from core.conversation.events import (
    PlayoutCleared,
    ResponseDone,
    SpeechDiscarded,
    TranscriptionCompleted,
    WakeStateChanged,
)
from pipeline.playout.interruption import says_only_stop
from pipeline.session.session import Session
from pipeline.shared.settings import PlayoutPacing, SessionSettings, TurnDetection
from tests.pipeline.fakes import EchoLlm, speak
from tests.pipeline.scenes import ONE, SILENCE, TWO, of, run_session
from tests.pipeline.wakeful import HALT_LEVEL, NAME, WORD_LEVEL, WakefulWorld

pytestmark = pytest.mark.many

STOP = 7000
BY_WORD = SessionSettings(barge_in="wake_word")
WITH_WAKE_WORD = replace(BY_WORD, wake_word=NAME)
ASKED = ((ONE, 600), (SILENCE, 1500))
"A question, and the beginning of its answer, which sounds for four seconds."


def world(late_ms: int = 0) -> WakefulWorld:
    made = WakefulWorld(late_ms=late_ms, llm=EchoLlm())
    made.tts.clause_ms = 4000
    return made


def talk(
    *script: tuple[int, int],
    settings: SessionSettings = BY_WORD,
    on: WakefulWorld | None = None,
    paced_by: PlayoutPacing = "server",
) -> tuple[list[Any], WakefulWorld]:
    on = on or world()

    async def scene(session: Session) -> None:
        await speak(session, *script)

    return run_session(on, scene, settings, paced_by), on


def transcripts(events: list[Any]) -> list[str]:
    return [event.transcript for event in of(TranscriptionCompleted, events)]


def asked(on: WakefulWorld) -> list[str]:
    """Returns the last words of the user in each request to the language model."""
    return [[m.text for m in messages if m.role == "user"][-1] for messages in on.llm.asked]


@pytest.mark.parametrize(
    ("words", "language", "expected"),
    [
        ("Stop.", "en", True),
        ("Okay, stop please!", "en", True),
        ("stop stop", "en", True),
        ("That's enough.", "en", True),
        ("stop the music", "en", False),
        ("don't stop", "en", False),
        ("okay please", "en", False),
        ("", "en", False),
        ("Sei still, bitte.", "de", True),
        ("Halt!", "de", True),
        ("halt das Auto an", "de", False),
        ("para", "es", True),
        ("para mañana", "es", False),
        ("停下", "zh", True),
        ("stop", "sv", True),
        ("para", "en", False),
    ],
)
def test_an_utterance_stops_only_if_it_says_nothing_else(
    words: str, language: str, expected: bool
) -> None:
    assert says_only_stop(words, language) is expected


def test_other_speech_neither_ends_nor_pauses_the_answer_and_is_not_answered() -> None:
    events, on = talk(*ASKED, (TWO, 900), (ONE, 300), (SILENCE, 9000))
    assert of(PlayoutCleared, events) == []
    assert [done.status for done in of(ResponseDone, events)] == ["completed"]
    assert transcripts(events) == ["one", "two one"]
    assert asked(on) == ["one"]
    assert "earshot_barge_in_pause_seconds" not in on.metrics.observed


def test_a_stop_word_ends_the_answer_at_the_pause_after_it_and_begins_no_turn() -> None:
    ends: list[tuple[bool, int]] = []

    async def scene(session: Session) -> None:
        await speak(session, *ASKED, (STOP, 400))
        for at_ms in range(0, 600, 20):
            ends.append((session._playout.writer is None, at_ms))
            await speak(session, (SILENCE, 20))
        await speak(session, (SILENCE, 4000))

    on = world()
    events = run_session(on, scene, BY_WORD)
    assert len(of(PlayoutCleared, events)) == 1
    assert next(at_ms for is_over, at_ms in ends if is_over) <= 60 + 50 + 40, "pause, then decode"
    assert transcripts(events) == ["one", "stop"]
    assert asked(on) == ["one"]
    assert on.metrics.counts["earshot_barge_in:stop_word"] == 1


def test_stop_at_the_beginning_of_a_sentence_is_no_stop_word() -> None:
    events, on = talk(*ASKED, (STOP, 400), (TWO, 600), (SILENCE, 9000))
    assert of(PlayoutCleared, events) == []
    assert asked(on) == ["one"]


def test_who_goes_on_after_the_stop_word_is_answered() -> None:
    events, on = talk(*ASKED, (STOP, 400), (SILENCE, 300), (TWO, 600), (SILENCE, 9000))
    assert len(of(PlayoutCleared, events)) == 1
    assert asked(on) == ["one", "stop two"]


def test_a_stop_word_ends_an_announcement() -> None:
    async def scene(session: Session) -> None:
        assert session.say("Your timer is done.")
        await speak(session, (SILENCE, 600), (STOP, 400), (SILENCE, 6000))

    on = world()
    events = run_session(on, scene, BY_WORD)
    assert len(of(PlayoutCleared, events)) == 1
    assert asked(on) == []


def test_before_the_first_sound_any_speech_counts() -> None:
    on = world()
    on.llm.word_s = 1.5
    events, _ = talk((ONE, 600), (SILENCE, 1600), (TWO, 900), (SILENCE, 20_000), on=on)
    assert [done.status for done in of(ResponseDone, events)] == ["cancelled", "completed"]


def test_speech_that_outlasts_the_answer_is_answered_but_not_a_late_stop() -> None:
    for level, expected in ((TWO, ["one", "two"]), (STOP, ["one"])):
        on = world()
        on.tts.clause_ms = 2000
        events, _ = talk(*ASKED, (SILENCE, 300), (level, 1500), (SILENCE, 9000), on=on)
        assert of(PlayoutCleared, events) == []
        assert asked(on) == expected


def test_a_client_that_plays_the_answer_is_interrupted_by_any_speech() -> None:
    _, on = talk(*ASKED, (TWO, 900), (SILENCE, 9000), paced_by="client")
    assert asked(on) == ["one", "two"]


@pytest.mark.parametrize("late_ms", [0, 120])
def test_the_wake_word_ends_the_answer_and_the_words_after_it_are_a_turn(late_ms: int) -> None:
    """Nothing is lost of a command in the same breath, and the word itself is not in it."""
    woken = ((WORD_LEVEL, 400), (SILENCE, 300))
    answered = ((WORD_LEVEL, 20), (TWO, 600), (SILENCE, 9000))
    on = world(late_ms)
    events, _ = talk(*woken, *ASKED, *answered, settings=WITH_WAKE_WORD, on=on)
    assert len(of(PlayoutCleared, events)) == 1
    assert transcripts(events) == ["one", "two"]
    assert asked(on) == ["one", "two"]
    heard_ms = max(len(item.pcm) / 16 for _, _, item in on.asr.asked[-1:])
    assert heard_ms >= 600
    assert on.metrics.counts["earshot_barge_in:wake_word"] == 1
    assert [event.is_awake for event in of(WakeStateChanged, events)].count(True) == 2


def test_speech_before_the_wake_word_is_dropped() -> None:
    script = ((WORD_LEVEL, 20), (SILENCE, 300), *ASKED, (ONE, 600), (WORD_LEVEL, 200))
    on = world()
    events, _ = talk(*script, (TWO, 600), (SILENCE, 9000), settings=WITH_WAKE_WORD, on=on)
    assert len(of(SpeechDiscarded, events)) == 1
    assert asked(on) == ["one", "two"]


def test_after_the_wake_word_stop_needs_no_answer() -> None:
    script = ((WORD_LEVEL, 20), (SILENCE, 300), *ASKED, (WORD_LEVEL, 200), (STOP, 500))
    on = world()
    events, _ = talk(*script, (SILENCE, 5000), (TWO, 600), (SILENCE, 6000), on=on,
                     settings=WITH_WAKE_WORD)  # fmt: skip
    assert len(of(PlayoutCleared, events)) == 1
    assert asked(on) == ["one", "two"]


def test_a_sleeping_session_hears_the_engines_words_over_an_announcement_and_nothing_else() -> None:
    for level, is_woken in ((HALT_LEVEL, False), (WORD_LEVEL, True)):
        on = world()

        async def scene(session: Session, level: int = level) -> None:
            assert session.say("Your timer is done.")
            await speak(session, (SILENCE, 600), (TWO, 600), (level, 20), (SILENCE, 6000))

        events = run_session(on, scene, WITH_WAKE_WORD)
        assert len(of(PlayoutCleared, events)) == 1
        assert (True in [event.is_awake for event in of(WakeStateChanged, events)]) is is_woken
        assert on.asr.asked == []


def test_a_stop_word_of_the_engine_needs_no_wake_word_and_no_recogniser() -> None:
    events, on = talk(*ASKED, (HALT_LEVEL, 20), (SILENCE, 6000))
    assert len(of(PlayoutCleared, events)) == 1
    assert transcripts(events) == ["one"]
    assert asked(on) == ["one"]


def test_without_the_policy_the_engine_has_no_stop_words() -> None:
    for settings in (SessionSettings(), replace(BY_WORD, turn_detection=None)):

        async def scene(session: Session) -> None:
            assert session._wake._stream is None

        run_session(world(), scene, settings)
    detection = TurnDetection(interrupt_response=False)
    events, _ = talk(
        *ASKED, (STOP, 600), (SILENCE, 9000), settings=replace(BY_WORD, turn_detection=detection)
    )
    assert of(PlayoutCleared, events) == []
