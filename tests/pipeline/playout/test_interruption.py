"""Speech over an answer: the judgement about it, and a session that acts on it."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import pytest

from core.conversation.events import (
    PlayoutCleared,
    PlayoutStopped,
    ResponseCreated,
    ResponseDone,
    SpeechStarted,
    TranscriptionCompleted,
    TurnTimeline,
)
from pipeline.playout.interruption import (
    DECIDE_MS,
    InterruptionVerdict,
    OverlappingSpeech,
    is_backchannel,
    judge_overlap,
)
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest, SessionSettings, TurnDetection
from tests.pipeline.fakes import EchoLlm, LevelAsr, ToneTts, World, speak
from tests.pipeline.scenes import NOISE, ONE, SILENCE, TWO, UH_HUH, of, run_session, talkative

pytestmark = pytest.mark.many

Policy = Literal["on", "patient"]


@pytest.mark.parametrize(
    ("words", "language", "is_question", "expected"),
    [
        ("Uh-huh.", "en", False, True),
        ("Okay, okay.", "en", False, True),
        ("yes", "en", False, True),
        ("yes", "en", True, False),
        ("Mm-hmm", "en", True, True),
        ("No.", "en", False, False),
        ("okay stop", "en", False, False),
        ("turn it off", "en", False, False),
        ("Genau!", "de", False, True),
        ("d'accord", "fr", False, True),
        ("ya veo", "es", False, True),
        ("uh-huh", "xx", False, False),
        ("", "en", False, True),
        ("yeah yeah yeah yeah turn on", "en", False, False),
    ],
)
def test_backchannels_by_language_and_question(
    words: str, language: str, is_question: bool, expected: bool
) -> None:
    assert is_backchannel(words, language, is_question=is_question) is expected


@pytest.mark.parametrize(
    ("words", "late", "silent", "wordless", "final", "on", "patient"),
    [
        ("", False, False, False, False, InterruptionVerdict.WAIT, InterruptionVerdict.WAIT),
        ("", True, False, False, False, InterruptionVerdict.CANCEL, InterruptionVerdict.RESUME),
        ("", True, True, False, False, InterruptionVerdict.RESUME, InterruptionVerdict.RESUME),
        ("", True, False, True, False, InterruptionVerdict.RESUME, InterruptionVerdict.RESUME),
        ("", False, True, True, True, InterruptionVerdict.RESUME, InterruptionVerdict.RESUME),
        ("uh-huh", False, False, False, False, InterruptionVerdict.WAIT, InterruptionVerdict.WAIT),
        (
            "uh-huh",
            True,
            False,
            False,
            False,
            InterruptionVerdict.RESUME,
            InterruptionVerdict.RESUME,
        ),
        (
            "uh-huh",
            False,
            True,
            False,
            True,
            InterruptionVerdict.RESUME,
            InterruptionVerdict.RESUME,
        ),
        ("lights", False, False, False, False, InterruptionVerdict.WAIT, InterruptionVerdict.WAIT),
        (
            "lights",
            True,
            False,
            False,
            False,
            InterruptionVerdict.CANCEL,
            InterruptionVerdict.RESUME,
        ),
        (
            "lights",
            False,
            True,
            False,
            True,
            InterruptionVerdict.CANCEL,
            InterruptionVerdict.RESUME,
        ),
        (
            "the lights",
            False,
            False,
            False,
            False,
            InterruptionVerdict.WAIT,
            InterruptionVerdict.WAIT,
        ),
        (
            "the lights",
            True,
            False,
            False,
            False,
            InterruptionVerdict.CANCEL,
            InterruptionVerdict.CANCEL,
        ),
        (
            "stop",
            False,
            False,
            False,
            False,
            InterruptionVerdict.CANCEL,
            InterruptionVerdict.CANCEL,
        ),
    ],
)
def test_the_verdict_depends_on_words_timing_and_policy(
    words: str,
    late: bool,
    silent: bool,
    wordless: bool,
    final: bool,
    on: InterruptionVerdict,
    patient: InterruptionVerdict,
) -> None:
    overlap = OverlappingSpeech(words, late, silent, wordless, final)
    assert judge_overlap(overlap, "on", "en", is_question=False) is on
    assert judge_overlap(overlap, "patient", "en", is_question=False) is patient


@pytest.mark.parametrize(
    ("words", "sense", "final", "expected"),
    [
        (
            "what's the",
            None,
            False,
            InterruptionVerdict.RESUME,
        ),  # "I see", as recognised by a model that expects commands
        ("will it", None, False, InterruptionVerdict.CANCEL),
        ("will it", False, False, InterruptionVerdict.RESUME),
        ("wake", False, False, InterruptionVerdict.CANCEL),  # "wait"
        ("you from", False, True, InterruptionVerdict.RESUME),  # "mm-hmm"
        ("you from", None, True, InterruptionVerdict.CANCEL),
        ("stop it", False, True, InterruptionVerdict.CANCEL),
    ],
)
def test_brief_speech_interrupts_only_with_words_that_make_sense(
    words: str, sense: bool | None, final: bool, expected: InterruptionVerdict
) -> None:
    brief = OverlappingSpeech(words, True, True, False, final, is_brief=True, makes_sense=sense)
    assert judge_overlap(brief, "on", "en", is_question=False) is expected
    longer = replace(brief, is_brief=False)
    assert judge_overlap(longer, "on", "en", is_question=False) is InterruptionVerdict.CANCEL


@pytest.mark.parametrize(
    ("sense", "brief", "joined", "expected"),
    [
        (True, True, False, InterruptionVerdict.CANCEL),
        (None, True, False, InterruptionVerdict.WAIT),
        (False, True, False, InterruptionVerdict.WAIT),
        (True, False, False, InterruptionVerdict.WAIT),  # the speech goes on
        (None, False, True, InterruptionVerdict.CANCEL),
    ],
)
def test_a_clear_interruption_is_not_waited_for(
    sense: bool | None, brief: bool, joined: bool, expected: InterruptionVerdict
) -> None:
    overlap = OverlappingSpeech("lights off", False, brief, False, False, brief, sense, joined)
    assert judge_overlap(overlap, "on", "en", is_question=False) is expected


def test_brief_speech_that_answers_a_question_needs_no_sense() -> None:
    overlap = OverlappingSpeech(
        "you from", False, True, False, True, is_brief=True, makes_sense=False
    )
    assert judge_overlap(overlap, "on", "en", is_question=True) is InterruptionVerdict.CANCEL


async def heard_ms(session: Session, *script: tuple[int, int]) -> list[int]:
    """Speaks the script, and returns the times in ms at which a frame of the answer came."""
    came, at_ms = [], 0
    for level, duration_ms in script:
        for _ in range(duration_ms // 20):
            before = session._playout.writer
            played = before.played if before else 0
            await speak(session, (level, 20))
            after = session._playout.writer
            at_ms += 20
            if after is not None and after is before and after.played > played:
                came.append(at_ms)
    return came


def test_a_backchannel_pauses_the_answer_which_then_resumes_where_it_stopped() -> None:
    world, came = talkative(), []

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1200))
        came.extend(await heard_ms(session, (UH_HUH, 400), (SILENCE, 9000)))

    events = run_session(world, scenario)
    gaps = [after - before for before, after in pairwise(came)]
    assert sum(gap > 20 for gap in gaps) == 1, "one pause, and no other gap"
    assert 100 <= max(gaps) <= DECIDE_MS + 40
    assert of(PlayoutCleared, events) == []
    assert len(of(PlayoutStopped, events)) == 1
    assert len(of(ResponseCreated, events)) == 1, "nobody answers an uh-huh"
    assert [e.transcript for e in of(TranscriptionCompleted, events)] == ["one", "uh-huh"]
    assert [t.status for t in of(TurnTimeline, events)] == ["transcribed", "answered"]
    assert world.metrics.counts["earshot_barge_in:resumed"] == 1


@pytest.mark.parametrize("word_s", [0.02, 0.3], ids=["all sent", "still made"])
def test_speech_over_an_answer_that_the_client_plays_is_always_answered(word_s: float) -> None:
    """A client drops its sound at the start of speech (ADR 36), and nothing would make it
    resume."""
    world = talkative()
    world.llm.word_s = word_s

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 2400), (UH_HUH, 400), (SILENCE, 20_000))

    events = run_session(world, scenario, paced_by="client")
    kinds = [type(event) for event in events]
    over = kinds[len(kinds) - 1 - kinds[::-1].index(SpeechStarted) :]
    if word_s == 0.3:
        assert over.index(ResponseDone) < over.index(TranscriptionCompleted), (
            "nobody waits for the words"
        )
    statuses = ["completed" if word_s < 0.3 else "cancelled", "completed"]
    assert [done.status for done in of(ResponseDone, events)] == statuses
    assert [m.text for m in world.llm.asked[-1] if m.role == "user"] == ["one", "uh-huh"]


def test_noise_over_an_answer_does_not_end_it() -> None:
    world = talkative()

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1200), (NOISE, 1500), (SILENCE, 9000))

    events = run_session(world, scenario)
    assert of(PlayoutCleared, events) == []
    assert [done.status for done in of(ResponseDone, events)] == ["completed"]


def test_an_interrupted_answer_falls_silent_within_a_frame_and_is_cancelled() -> None:
    world, came = talkative(), []
    world.llm.word_s = 0.3

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1200))
        came.extend(await heard_ms(session, (TWO, 1200)))
        await speak(session, (SILENCE, 20_000))

    events = run_session(world, scenario)
    assert came[-1] <= 160 + 20, "the endpointer wants 160 ms of speech over an answer"
    assert len(of(PlayoutCleared, events)) == 1
    assert [done.status for done in of(ResponseDone, events)] == ["cancelled", "completed"]
    assert (world.llm.closed_early, world.tts.closed_early) == (1, 1), "cancelled, not muted"
    assert world.metrics.counts["earshot_barge_in:interruption"] == 1


def test_late_words_still_interrupt_a_patient_session() -> None:
    world = talkative(delay_s=0.6)

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 2200))
        await speak(session, (ONE, 800), (TWO, 800), (SILENCE, 9000))

    events = run_session(world, scenario, SessionSettings(barge_in="patient"))
    first, second = of(ResponseDone, events)
    assert (first.status, second.status) == ("cancelled", "completed")
    assert of(TranscriptionCompleted, events)[-1].transcript == "one two"


def test_one_word_does_not_interrupt_a_patient_session() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1200), (TWO, 600), (SILENCE, 9000))

    events = run_session(talkative(), scenario, SessionSettings(barge_in="patient"))
    assert [done.status for done in of(ResponseDone, events)] == ["completed"]


UNINTERRUPTED = (
    SessionSettings(turn_detection=TurnDetection(interrupt_response=False)),
    SessionSettings(barge_in="off"),
)


@pytest.mark.parametrize("settings", UNINTERRUPTED, ids=["interrupt_response", "barge_in"])
def test_a_session_can_forbid_interruptions(settings: SessionSettings) -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1200), (TWO, 600), (SILENCE, 30_000))

    events = run_session(talkative(), scenario, settings)
    assert of(PlayoutCleared, events) == []
    assert [done.status for done in of(ResponseDone, events)] == ["completed", "completed"]


def test_two_utterances_before_any_sound_of_an_answer_are_answered_together() -> None:
    """The second is too late to continue the sentence, but comes before any word of the answer was
    heard."""
    world = World(llm=EchoLlm(word_s=1.5))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1600), (TWO, 900), (SILENCE, 20_000))

    events = run_session(world, scenario)
    first, second = of(ResponseDone, events)
    assert (first.status, second.status) == ("cancelled", "completed")
    said = [m.text for m in world.llm.asked[-1] if m.role == "user"]
    assert said == ["one", "two"]
    assert not [m for m in world.llm.asked[-1] if m.role == "assistant"]


def test_clearing_the_input_lets_the_answer_resume() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1200), (TWO, 300))
        session.clear_input()
        await speak(session, (SILENCE, 9000))
        assert not session._responses._barge_in.is_open
        await asyncio.wait_for(session.settled(), 1)

    events = run_session(talkative(), scenario)
    assert [done.status for done in of(ResponseDone, events)] == ["completed"]


async def until_the_answer_is_nearly_over(session: Session) -> None:
    while (writer := session._playout.writer) is None or writer.total_ms - writer.heard_ms > 200:
        await speak(session, (SILENCE, 20))


def test_a_backchannel_whose_words_come_late_stays_one_despite_later_noise() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 2200))
        await speak(session, (UH_HUH, 300), (SILENCE, 1600), (NOISE, 300), (SILENCE, 20_000))

    events = run_session(talkative(delay_s=2.0), scenario)
    assert [e.transcript for e in of(TranscriptionCompleted, events)] == ["one", "uh-huh", ""]
    assert [done.status for done in of(ResponseDone, events)] == ["completed"]


def test_a_backchannel_that_outlasts_the_answer_leaves_no_draft() -> None:
    world = World(asr=LevelAsr(0.3), tts=ToneTts(1500))

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1200))
        await until_the_answer_is_nearly_over(session)
        await speak(session, (UH_HUH, 400), (SILENCE, 3000))
        assert world.drafts.count == 0

    events = run_session(world, scenario)
    assert len(of(ResponseCreated, events)) == 1
    assert world.metrics.counts["earshot_speculation:dropped"] == 1


def test_a_word_over_the_end_of_an_answer_is_answered_afterwards() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1200))
        await until_the_answer_is_nearly_over(session)
        await speak(session, (TWO, 600), (SILENCE, 3000))

    patient = SessionSettings(barge_in="patient")
    events = run_session(World(tts=ToneTts(1500)), scenario, patient)
    assert [done.status for done in of(ResponseDone, events)] == ["completed", "completed"]


def test_one_word_interrupts_a_patient_session_that_asks_a_question() -> None:
    world = talkative()
    world.llm.ending += "?"

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1200), (TWO, 600), (SILENCE, 30_000))

    events = run_session(world, scenario, SessionSettings(barge_in="patient"))
    assert [done.status for done in of(ResponseDone, events)] == ["cancelled", "completed"]
    assert len(of(PlayoutCleared, events)) == 1


def test_a_backchannel_is_answered_if_only_an_out_of_band_response_runs() -> None:
    world = World()
    world.llm.word_s = 2.0

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200))
        session.create_response(ResponseRequest(modality="text", in_conversation=False))
        await speak(session, (UH_HUH, 600), (SILENCE, 30_000))

    events = run_session(world, scenario)
    assert [done.status for done in of(ResponseDone, events)] == ["completed", "completed"]


@pytest.mark.parametrize("settings", UNINTERRUPTED, ids=["interrupt_response", "barge_in"])
def test_utterances_over_an_uninterruptible_answer_get_one_answer(
    settings: SessionSettings,
) -> None:
    world = talkative()

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1200))
        await speak(session, (TWO, 600), (SILENCE, 900), (ONE, 600), (SILENCE, 30_000))

    events = run_session(world, scenario, settings)
    assert [done.status for done in of(ResponseDone, events)] == ["completed", "completed"]
    assert [m.text for m in world.llm.asked[-1] if m.role == "user"] == ["one", "two", "one"]
    assert world.llm.asked[-1][-1].role == "user", "nobody answers an answer"
