"""For any VAD results and any times of evidence, edges keep their order and no wait is cut
short."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.audio import ASR_RATE_HZ, AudioFrame, ms_to_samples
from pipeline.shared.settings import TurnDetection
from pipeline.user_turn.speech_detection.endpointing import (
    DELAYS,
    MAX_HANG_MS,
    ONSET_MS,
    START_MS,
    EdgeKind,
    Endpointer,
    SpeechEdge,
    endpoint_delay_ms,
)
from pipeline.user_turn.speech_detection.speech_detector import SpeechDetector
from pipeline.user_turn.speech_detection.speech_offset import AudibleEnd
from tests.pipeline.fakes import LoudVad

FRAME = 320
FOLLOWS: dict[EdgeKind, set[EdgeKind | None]] = {
    EdgeKind.STARTED: {None, EdgeKind.ENDED},
    EdgeKind.CANDIDATE: {EdgeKind.STARTED, EdgeKind.RESUMED},
    EdgeKind.RESUMED: {EdgeKind.CANDIDATE},
    EdgeKind.ENDED: {EdgeKind.STARTED, EdgeKind.CANDIDATE, EdgeKind.RESUMED},
}


@dataclass(frozen=True)
class Step:
    """One frame, and what happens just before it."""

    probability: float
    quiet_ms: int | None
    "The time before the VAD's end of speech at which the sound ended; None: not known."
    is_audible: bool
    expect_ms: int | None
    reset: bool


def runs(one: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    """Returns frames in runs of the same kind, as in speech."""
    run = st.tuples(one, st.integers(1, 30)).map(lambda r: [r[0]] * r[1])
    return st.lists(run, max_size=25).map(lambda found: [step for run in found for step in run])


STEPS = runs(
    st.builds(
        Step,
        st.sampled_from([0.0, 0.4, 0.6, 1.0]),
        st.none() | st.integers(-100, 500),
        st.booleans(),
        st.none() | st.integers(0, 900),
        st.integers(0, 60).map(lambda n: n == 0),
    )
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(100, 900))
def test_edges_keep_their_order_and_no_wait_is_cut_short(
    steps: list[Step], silence_ms: int
) -> None:
    endpointer = Endpointer(silence_ms=silence_ms)
    last: EdgeKind | None = None
    wait, position = silence_ms, 0
    for step in steps:
        if step.reset:
            endpointer.reset()
            last, wait = None, silence_ms
        if step.expect_ms is not None:
            endpointer.set_delay(step.expect_ms)
            if last is EdgeKind.CANDIDATE:
                wait = step.expect_ms
        edge = endpointer.push(step.probability, FRAME, sound_of(step, endpointer))
        position += FRAME
        if edge is None:
            continue
        assert last in FOLLOWS[edge.kind]
        assert 0 <= edge.at <= edge.until <= position
        silence = position - edge.at
        if edge.kind is EdgeKind.ENDED:
            assert silence >= ms_to_samples(wait, ASR_RATE_HZ)
        if edge.kind in (EdgeKind.ENDED, EdgeKind.CANDIDATE):
            assert edge.until - edge.at <= ms_to_samples(MAX_HANG_MS, ASR_RATE_HZ)
            assert step.probability < 0.5
        else:
            wait = silence_ms
        last = edge.kind


def sound_of(step: Step, endpointer: Endpointer) -> AudibleEnd | None:
    if step.quiet_ms is None:
        return None
    quiet = ms_to_samples(step.quiet_ms, ASR_RATE_HZ)
    return AudibleEnd(endpointer.speech_end - quiet, step.is_audible)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=12),
    st.dictionaries(st.integers(0, 400), st.none() | st.floats(0, 1), max_size=6),
    st.integers(100, 900),
)
def test_no_sample_of_speech_is_lost_for_any_evidence(
    script: list[tuple[bool, int]], evidence: dict[int, float | None], chunk: int
) -> None:
    hearing = SpeechDetector(LoudVad())
    hearing.configure(TurnDetection(kind="semantic_vad", prefix_padding_ms=0))
    random = np.random.default_rng(4)
    parts = [
        random.integers(500, 5000, frames * FRAME) * (1 if is_loud else 0)
        for is_loud, frames in [*script, (False, 1)]
    ]
    audio = np.concatenate(parts).astype(np.int16)
    taken = np.zeros(len(audio), np.int64)
    for number, at in enumerate(range(0, len(audio), chunk)):
        if number in evidence:
            hearing.set_delay(evidence[number])
        for heard in hearing.push(AudioFrame(audio[at : at + chunk], ASR_RATE_HZ, at)):
            if heard.in_speech:
                place = slice(hearing.samples - len(heard.pcm), hearing.samples)
                assert np.array_equal(heard.pcm, audio[place])
                taken[place] += 1
    assert taken.max() <= 1  # nothing is passed on twice
    for at, part in zip(np.cumsum([0, *map(len, parts)]), parts, strict=False):
        if part.any() and len(part) >= ms_to_samples(START_MS, ASR_RATE_HZ):
            assert taken[at : at + len(part)].all()


def say(endpointer: Endpointer, pattern: str, sound: AudibleEnd | None = None) -> list[SpeechEdge]:
    """Pushes the pattern: `s` is 20 ms of speech, `.` 20 ms of silence."""
    pushed = [endpointer.push(float(char == "s"), FRAME, sound) for char in pattern]
    return [edge for edge in pushed if edge]


def test_silence_counts_from_the_last_sound_and_the_candidate_comes_at_once() -> None:
    endpointer = Endpointer(silence_ms=200)
    say(endpointer, "s" * 20)
    sound = AudibleEnd(16 * FRAME, is_now=False)
    candidate, ended = say(endpointer, "." * 6, sound)
    assert candidate == SpeechEdge(EdgeKind.CANDIDATE, 16 * FRAME, 20 * FRAME)
    assert ended == SpeechEdge(EdgeKind.ENDED, 16 * FRAME, 20 * FRAME)


def test_a_late_consonant_makes_the_candidate_void_and_moves_the_end() -> None:
    endpointer = Endpointer(silence_ms=200)
    say(endpointer, "s" * 20)
    (candidate,) = say(endpointer, "." * 4, AudibleEnd(20 * FRAME, is_now=False))
    assert candidate.kind is EdgeKind.CANDIDATE
    end = 26 * FRAME
    resumed, again, ended = say(
        endpointer, "." * 13, AudibleEnd(20 * FRAME, is_now=False, after=end)
    )
    assert (resumed.kind, resumed.at) == (EdgeKind.RESUMED, 24 * FRAME)
    assert again == SpeechEdge(EdgeKind.CANDIDATE, end, end)
    assert ended == SpeechEdge(EdgeKind.ENDED, end, end)


def test_a_consonant_before_the_candidate_belongs_to_it() -> None:
    endpointer = Endpointer(silence_ms=200)
    say(endpointer, "s" * 20)
    sound = AudibleEnd(20 * FRAME, is_now=False, after=21 * FRAME)
    candidate, ended = say(endpointer, "." * 12, sound)
    assert candidate == SpeechEdge(EdgeKind.CANDIDATE, 21 * FRAME, 21 * FRAME)
    assert ended == SpeechEdge(EdgeKind.ENDED, 21 * FRAME, 21 * FRAME)


def test_a_sound_at_the_end_of_the_wait_delays_the_end_briefly() -> None:
    endpointer = Endpointer(silence_ms=200)
    say(endpointer, "s" * 20 + "." * 9)
    sounding = AudibleEnd(20 * FRAME, is_now=True)
    assert say(endpointer, "..", sounding) == []
    assert [edge.kind for edge in say(endpointer, "s")] == [EdgeKind.RESUMED]
    endpointer = Endpointer(silence_ms=200)
    say(endpointer, "s" * 20 + "." * 9)
    assert say(endpointer, "." * (ONSET_MS // 20), sounding) == []
    assert [edge.kind for edge in say(endpointer, ".", sounding)] == [EdgeKind.ENDED]


def test_evidence_changes_the_wait_of_this_pause_only() -> None:
    endpointer = Endpointer(silence_ms=400)
    (_, candidate) = say(endpointer, "sss" + "." * 10)
    endpointer.set_delay(120, candidate.at)
    assert [edge.kind for edge in say(endpointer, ".")] == [EdgeKind.ENDED]  # it was longer already
    edges = say(endpointer, "sss" + "." * 5)
    endpointer.set_delay(120, candidate.at)  # of the pause before: too late
    assert say(endpointer, "." * 14) == []
    assert [edge.kind for edge in say(endpointer, ".")] == [EdgeKind.ENDED]
    edges = say(endpointer, "sss" + "." * 5)
    endpointer.set_delay(800, edges[-1].at)
    assert [edge.kind for edge in say(endpointer, "." * 30 + "s")] == [EdgeKind.RESUMED]
    assert [edge.kind for edge in say(endpointer, "." * 20)] == [EdgeKind.CANDIDATE, EdgeKind.ENDED]


@pytest.mark.parametrize("probability", [None, 0.0, 0.5, 1.0])
def test_server_vad_waits_exactly_as_set_whatever_the_evidence(probability: float | None) -> None:
    assert ended_after_ms(TurnDetection(silence_ms=340), probability) == 340


@pytest.mark.parametrize(("probability", "wait"), [(None, 450), (0.0, 600), (0.5, 450), (1.0, 120)])
def test_semantic_vad_waits_by_the_evidence(probability: float | None, wait: float) -> None:
    assert endpoint_delay_ms("auto", probability) == wait
    frames_ms = -(-wait // 20) * 20
    assert ended_after_ms(TurnDetection(kind="semantic_vad"), probability) == frames_ms


def ended_after_ms(detection: TurnDetection, probability: float | None) -> float:
    """Returns the ms of silence from the last loud sample to ENDED, with the evidence given at the
    candidate."""
    hearing = SpeechDetector(LoudVad())
    hearing.configure(detection)
    noise = np.random.default_rng(3).normal(0, 3000, 50 * FRAME)
    audio = np.concatenate([noise.astype(np.int16), np.zeros(100 * FRAME, np.int16)])
    for at in range(0, len(audio), FRAME):
        for heard in hearing.push(AudioFrame(audio[at : at + FRAME], ASR_RATE_HZ, at)):
            if heard.edge and heard.edge.kind is EdgeKind.CANDIDATE:
                hearing.set_delay(probability, heard.edge.at)
            if heard.edge and heard.edge.kind is EdgeKind.ENDED:
                return (hearing.samples - 50 * FRAME) / 16
    pytest.fail("it never ended")


def test_waits_are_longer_for_unfinished_than_for_finished_sentences() -> None:
    for waits in DELAYS.values():
        assert waits.unfinished > waits.unknown > waits.finished
