"""A turn ends when its silence is over, not with the next packet; in virtual time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame
from core.conversation.events import (
    SessionEvent,
    SpeechStarted,
    SpeechStopped,
    TranscriptionCompleted,
    TurnTimeline,
)
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings, TurnDetection
from pipeline.user_turn.speech_detection.endpoint_timer import ArrivalPace, EndpointTimer
from pipeline.user_turn.speech_detection.endpointing import MAX_EARLY_MS, EdgeKind, Endpointer
from pipeline.user_turn.speech_detection.speech_detector import SpeechDetector
from pipeline.user_turn.speech_detection.speech_offset import AudibleEnd
from tests.loop import run_virtual
from tests.pipeline.fakes import FRAME, LoopClock, LoudVad, World
from tests.pipeline.scenes import of, run_session

SILENCE, ONE, TWO = 0, 1000, 2000
WAIT = TurnDetection(silence_ms=210)
"Half a packet is missing after ten."


# Silence that is assumed.


def paused(frames: int, sound: AudibleEnd | None = None, silence_ms: float = 210) -> Endpointer:
    """Returns an endpointer after speech and this number of silent frames."""
    endpointer = Endpointer(silence_ms=silence_ms)
    for _ in range(10):
        endpointer.push(1.0, FRAME)
    for _ in range(frames):
        endpointer.push(0.0, FRAME, sound)
    return endpointer


def test_at_most_one_packet_of_silence_is_assumed() -> None:
    missing = [paused(frames).missing_samples for frames in range(11)]
    assert missing == [None] * 10 + [160]
    assert paused(10, silence_ms=200 + MAX_EARLY_MS).missing_samples == 320
    assert paused(10, silence_ms=201 + MAX_EARLY_MS).missing_samples is None
    assert paused(9).end_early() is None


def test_an_early_end_ends_the_utterance_at_its_last_sound() -> None:
    endpointer = paused(10)
    ended = endpointer.end_early()
    assert ended is not None
    assert (ended.kind, ended.at, ended.until) == (EdgeKind.ENDED, 10 * FRAME, 10 * FRAME)
    assert not endpointer.in_speech
    assert endpointer.missing_samples is None
    assert endpointer.end_early() is None
    again = [endpointer.push(1.0, FRAME) for _ in range(3)]  # in the very next frame
    assert again[-1] is not None
    assert (again[-1].kind, again[-1].at) == (EdgeKind.STARTED, 20 * FRAME)


def test_no_silence_is_assumed_during_sound_or_speech() -> None:
    assert paused(10, AudibleEnd(10 * FRAME, is_now=False)).missing_samples == 160
    assert paused(10, AudibleEnd(10 * FRAME, is_now=True)).missing_samples is None
    endpointer = paused(10)
    endpointer.push(1.0, FRAME)
    assert endpointer.missing_samples is None
    endpointer.push(0.0, FRAME)
    endpointer.reset()
    assert endpointer.end_early() is None


def test_with_evidence_no_silence_may_be_missing() -> None:
    assert paused(10, silence_ms=500).missing_samples is None
    endpointer = paused(10, silence_ms=500)
    endpointer.set_delay(120)
    assert endpointer.missing_samples == 0
    assert endpointer.end_early() is not None


# Live audio.


def pace(gaps_ms: Sequence[float], packet_ms: int = 20) -> ArrivalPace:
    found, now = ArrivalPace(), 7.0
    for gap_ms in gaps_ms:
        now += gap_ms / 1000
        found.push(now, packet_ms * ASR_RATE_HZ // 1000)
    return found


@pytest.mark.parametrize(
    ("gaps_ms", "packet_ms", "is_live"),
    [
        ([20] * 51, 20, True),
        ([20] * 30, 20, False),  # too little is known
        ([60] * 20, 60, True),
        ([100] * 11, 100, True),
        ([20, 30, 10] * 20, 20, True),
        ([20] * 60 + [120, 0, 0, 0, 0, 0], 20, True),  # a delay, and the packets that it held back
        ([20] * 60 + [0] * 20, 20, False),
        ([10] * 100, 20, False),  # twice as fast
        ([0] * 100, 20, False),
        ([0] * 100 + [20] * 51, 20, True),
    ],
)
def test_audio_at_the_pace_of_time_is_live(
    gaps_ms: Sequence[float], packet_ms: int, is_live: bool
) -> None:
    assert pace(gaps_ms, packet_ms).is_live is is_live


def test_samples_that_the_vad_has_not_judged_shorten_the_wait() -> None:
    class Slow(LoudVad):
        frame_samples = 512

    async def main() -> None:
        clock, ended = LoopClock(), list[float]()
        hearing = SpeechDetector(Slow())
        hearing.configure(WAIT)
        ending = EndpointTimer(hearing, clock)
        task = asyncio.create_task(ending.run(lambda: ended.append(clock.now())))
        loud = np.random.default_rng(1).normal(0, 4000, 1600).astype(np.int16)
        came_at = list[float]()
        for at in range(80):
            await asyncio.sleep(0.02)
            pcm = np.resize(loud, FRAME) if at < 61 else np.zeros(FRAME, np.int16)
            ending.frame_arrived(FRAME)
            list(hearing.push(AudioFrame(pcm, ASR_RATE_HZ, 0)))
            ending.update()
            came_at.append(clock.now())
            if hearing.missing_samples:
                break
        heard = hearing.samples + hearing.unjudged_samples
        assert hearing.unjudged_samples
        assert hearing.missing_samples
        await asyncio.sleep(0.05)
        task.cancel()
        left_s = (hearing.samples + hearing.missing_samples - heard) / ASR_RATE_HZ
        assert ended == [pytest.approx(came_at[-1] + max(0, left_s))]

    run_virtual(main())


# Sessions.

Script = Sequence[tuple[int, int]]


async def say(session: Session, script: Script, packet_ms: float = 20, faster: float = 1) -> None:
    for level, duration_ms in script:
        for _ in range(round(duration_ms / 20)):
            await asyncio.sleep(packet_ms / 1000 / faster)
            session.feed(AudioFrame(np.full(FRAME, level, np.int16), ASR_RATE_HZ, 0))
            session.pull()


class Timed:
    """A session's events, with the time of each end of speech."""

    def __init__(
        self,
        scenario: Callable[[Session], object],
        detection: TurnDetection = WAIT,
        **settings: object,
    ) -> None:
        self.ended_ms: list[float] = []

        async def watched(session: Session) -> None:
            emit, loop = session._user_turns._emit, asyncio.get_running_loop()

            def note(event: SessionEvent) -> None:
                if isinstance(event, SpeechStopped):
                    self.ended_ms.append(round(1000 * loop.time(), 3))
                emit(event)

            session._user_turns._emit = note
            await scenario(session)  # type: ignore[misc]

        asked = replace(SessionSettings(turn_detection=detection), **settings)  # type: ignore[arg-type]
        self.events = run_session(World(), watched, asked)


def test_a_turn_ends_between_two_packets() -> None:
    timed = Timed(lambda s: say(s, [(SILENCE, 800), (ONE, 400), (SILENCE, 3000)]))
    assert timed.ended_ms == [1200 + 210]
    assert [e.audio_end_ms for e in of(SpeechStopped, timed.events)] == [1200]
    (turn,) = of(TurnTimeline, timed.events)
    assert turn.status == "answered"
    assert (turn.stages[0].stage, turn.stages[0].end_ms) == ("endpoint_wait", 210)
    assert [e.transcript for e in of(TranscriptionCompleted, timed.events)] == ["one"]


def test_missing_packets_do_not_end_a_turn() -> None:
    async def scenario(session: Session) -> None:
        await say(session, [(SILENCE, 800), (ONE, 400), (SILENCE, 180)])
        await asyncio.sleep(2)
        assert session._input.is_speaking
        await say(session, [(SILENCE, 20)])
        await asyncio.sleep(2)

    timed = Timed(scenario)
    assert timed.ended_ms == [1200 + 180 + 2000 + 20 + 10]


def test_an_upload_ends_a_turn_only_by_its_packets() -> None:
    script = [(SILENCE, 2000), (ONE, 400), (SILENCE, 200), (TWO, 400), (SILENCE, 3000)]
    timed = Timed(lambda s: say(s, script, faster=2))
    assert [e.transcript for e in of(TranscriptionCompleted, timed.events)] == ["one two"]
    assert timed.ended_ms == [1500 + 110]  # with a whole packet, at twice the speed


def test_speech_after_an_early_end_loses_no_sample() -> None:
    script = [(SILENCE, 800), (ONE, 400), (SILENCE, 200), (TWO, 400), (SILENCE, 3000)]
    timed = Timed(lambda s: say(s, script), replace(WAIT, prefix_padding_ms=0))
    assert [e.transcript for e in of(TranscriptionCompleted, timed.events)] == ["one", "one two"]
    assert [e.audio_start_ms for e in of(SpeechStarted, timed.events)] == [800, 1400]


def test_speech_after_an_early_end_can_continue_the_sentence() -> None:
    semantic = TurnDetection(
        kind="semantic_vad", eagerness="medium"
    )  # 600 ms without evidence from words
    script = [(SILENCE, 800), (ONE, 400), (SILENCE, 700), (TWO, 400), (SILENCE, 4000)]
    timed = Timed(lambda s: say(s, script), semantic)
    assert [e.transcript for e in of(TranscriptionCompleted, timed.events)][-1] == "one two"
    assert [t.status for t in of(TurnTimeline, timed.events)][-1] == "answered"


def test_settings_that_change_during_the_wait_apply() -> None:
    async def scenario(session: Session) -> None:
        await say(session, [(SILENCE, 800), (ONE, 400), (SILENCE, 200)])
        session.configure(SessionSettings(turn_detection=None))
        await asyncio.sleep(1)
        assert session._input.is_speaking
        session.commit_input()
        await asyncio.sleep(1)

    assert Timed(scenario).ended_ms == [2400]


def test_a_commit_during_the_wait_is_the_only_end() -> None:
    async def scenario(session: Session) -> None:
        await say(session, [(SILENCE, 800), (ONE, 400), (SILENCE, 200)])
        session.commit_input()
        await asyncio.sleep(1)

    assert Timed(scenario).ended_ms == [1400]


def test_a_speaker_knows_shortly_before_the_end_that_sound_may_come() -> None:
    told: list[bool] = []

    async def scenario(session: Session) -> None:
        await say(session, [(SILENCE, 800), (ONE, 400), (SILENCE, 200)])
        for _ in range(3):
            await asyncio.sleep(0.006)
            told.append(session.next_sound_event is not None)

    Timed(scenario, TurnDetection(silence_ms=219))
    assert told == [False, True, True]


def test_early_ends_begin_only_when_the_audio_is_known_to_be_live() -> None:
    timed = Timed(lambda s: say(s, [(ONE, 400), (SILENCE, 3000)]))
    assert timed.ended_ms == [400 + 220]
