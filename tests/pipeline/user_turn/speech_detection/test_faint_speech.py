"""Faint sound: the VAD gets it louder, and what leads up to speech is decoded with it."""

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from pipeline.user_turn.speech_detection.endpointing import EdgeKind
from pipeline.user_turn.speech_detection.speech_detector import (
    FAINT_MS,
    LEVEL_MS,
    LOUD_RMS,
    MOST_GAIN,
    FaintSoundGain,
    SpeechDetector,
    faint_start,
)
from tests.pipeline.fakes import FRAME, LoudVad

FAINT, LOUD = 20, 4000
"Levels below and above `LoudVad`'s threshold, the first one also with the gain."
MS = ASR_RATE_HZ // 1000


def sound(*script: tuple[int, int]) -> Pcm:
    """Returns noise of these levels, each for so many ms, over a converter's own noise."""
    random = np.random.default_rng(1)
    levels = np.concatenate([np.full(ms * MS, level) for level, ms in script])
    return np.asarray(np.round(random.uniform(-1, 1, len(levels)) * (levels + 1)), np.int16)


@pytest.mark.parametrize(
    ("script", "start_ms"),
    [
        (((0, 1000),), 1000),
        (((0, 600), (FAINT, 400)), 600),
        (((0, 400), (FAINT, 300), (0, 200), (FAINT, 300)), 400),
        (((0, 300), (FAINT, 300), (0, 1200), (FAINT, 300)), 1800),
        (((FAINT, 300), (0, 1200)), 1500),
        (((FAINT, 1000),), 1000),
        (((0, 500), (FAINT, 4000)), 4500),
    ],
    ids=[
        "silence before",
        "faint speech before",
        "a pause between faint words",
        "another sound before a long pause",
        "a sound that is over",
        "steady noise",
        "steady noise for longer than is kept",
    ],
)
def test_where_faint_speech_begins(script: tuple[tuple[int, int], ...], start_ms: int) -> None:
    pcm = sound(*script, (LOUD, 100))
    speech = sum(ms for _, ms in script) * MS
    assert faint_start(pcm, speech) == start_ms * MS


def decoded_before_speech_ms(script: tuple[tuple[int, int], ...], *, is_guarded: bool) -> float:
    """Returns how much audio before the VAD's start belongs to the utterance, in ms."""
    detector = SpeechDetector(LoudVad())
    detector.guard(is_guarded)
    pcm = sound(*script, (LOUD, 400))
    for at in range(0, len(pcm) - FRAME + 1, FRAME):
        for detected in detector.push(AudioFrame(pcm[at : at + FRAME], ASR_RATE_HZ, 0)):
            if detected.edge is not None and detected.edge.kind is EdgeKind.STARTED:
                begin = detector.samples - len(detected.pcm)
                return (detected.edge.at - begin) / MS
    raise AssertionError("no speech started")


def test_an_utterance_has_the_faint_speech_before_it_and_the_usual_padding() -> None:
    before_ms = decoded_before_speech_ms(((0, 2000), (FAINT, 1000)), is_guarded=False)
    assert before_ms == pytest.approx(1300, abs=20)


def test_at_most_three_seconds_of_faint_speech_are_kept() -> None:
    pauses = ((FAINT, 400), (0, 200)) * 10
    before_ms = decoded_before_speech_ms(((0, 2000), *pauses, (FAINT, 400)), is_guarded=False)
    assert before_ms <= FAINT_MS + 300


def test_silence_before_speech_changes_nothing() -> None:
    assert decoded_before_speech_ms(((0, 2000),), is_guarded=False) == pytest.approx(300, abs=20)


def test_sound_before_speech_over_an_answer_is_the_assistants_own() -> None:
    before_ms = decoded_before_speech_ms(((0, 2000), (FAINT, 1000)), is_guarded=True)
    assert before_ms == pytest.approx(300, abs=20)


def amplified(*script: tuple[int, int], is_off: bool = False) -> Pcm:
    """Returns what the VAD gets of a sound."""
    gain, pcm = FaintSoundGain(), sound(*script)
    frames = pcm.reshape(-1, FRAME)
    return np.concatenate([gain.push(frame, is_off=is_off) for frame in frames])


def rms(pcm: Pcm) -> float:
    return float(np.sqrt(np.mean(np.square(pcm.astype(np.float64)))))


@pytest.mark.parametrize(
    ("level", "expected"),
    [(20, MOST_GAIN * 12), (200, LOUD_RMS), (LOUD, rms(sound((LOUD, 1000))))],
    ids=["faint", "soft", "loud"],
)
def test_the_vad_gets_soft_voices_louder(level: int, expected: float) -> None:
    assert rms(amplified((level, 1000))) == pytest.approx(expected, rel=0.05)


def test_the_pauses_of_a_loud_voice_are_not_amplified_at_once() -> None:
    pause_ms = LEVEL_MS + 500
    heard = amplified((LOUD, 100), (FAINT, pause_ms))[100 * MS :]
    kept = (LEVEL_MS - 100) * MS
    assert np.array_equal(heard[:kept], sound((LOUD, 100), (FAINT, pause_ms))[100 * MS :][:kept])
    assert rms(heard[-FRAME:]) > 5 * rms(heard[:FRAME])


def test_a_sudden_loud_sound_does_not_overflow() -> None:
    heard, pcm = amplified((FAINT, 500), (30_000, 100)), sound((FAINT, 500), (30_000, 100))
    assert np.array_equal(heard[500 * MS :], pcm[500 * MS :])


def test_nothing_is_amplified_while_the_assistant_is_audible() -> None:
    assert np.array_equal(amplified((FAINT, 500), is_off=True), sound((FAINT, 500)))


def test_digital_silence_stays() -> None:
    quiet = np.zeros(FRAME, np.int16)
    assert np.array_equal(FaintSoundGain().push(quiet, is_off=False), quiet)


@pytest.mark.parametrize(("is_guarded", "starts"), [(False, True), (True, False)])
def test_a_soft_voice_starts_a_turn_with_its_own_sound(*, is_guarded: bool, starts: bool) -> None:
    detector = SpeechDetector(LoudVad())
    detector.guard(is_guarded)
    pcm = sound((0, 1000), (200, 400))
    frames = [AudioFrame(one, ASR_RATE_HZ, 0) for one in pcm.reshape(-1, FRAME)]
    heard = [detected for frame in frames for detected in detector.push(frame)]
    assert any(detected.in_speech for detected in heard) is starts
    assert all(np.abs(detected.pcm).max() <= 201 for detected in heard)
