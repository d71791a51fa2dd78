"""The search for the end of sound, with signals whose end is known."""

import numpy as np
import numpy.typing as npt
import pytest

from core.audio import ASR_RATE_HZ, Pcm
from pipeline.user_turn.speech_detection.speech_offset import (
    FADED_DB,
    PARTS,
    TAIL_MS,
    WINDOW_MS,
    AudibleEnd,
    SpeechOffset,
)

Signal = npt.NDArray[np.float64]

SPEECH_MS, HANG_MS, AFTER_MS = 700, 120, 300
"The VAD ends speech `HANG_MS` after the sound does, and the search goes on for `AFTER_MS`."


def samples(ms: float) -> int:
    return round(ms * ASR_RATE_HZ / 1000)


def vowel(ms: float, level: float = 4000) -> Signal:
    time = np.arange(samples(ms)) / ASR_RATE_HZ
    tones = [np.sin(2 * np.pi * 140 * n * time) / n for n in range(1, 12)]
    voice: Signal = level * np.sum(tones, axis=0)
    return voice


def hiss(ms: float, level: float, seed: int = 1) -> Signal:
    """Returns noise of high frequencies."""
    steps: Signal = np.diff(np.random.default_rng(seed).normal(0, level, samples(ms) + 1))
    steps /= np.sqrt(2)
    return steps


def noise(ms: float, level: float, seed: int = 2) -> Signal:
    return np.random.default_rng(seed).normal(0, level, samples(ms))


def heard(
    signal: Signal, speech_end_ms: float, chunk: int = 320, late_ms: float = 0
) -> list[AudibleEnd | None]:
    """Returns the results after each chunk since the VAD's end of speech."""
    pcm: Pcm = np.clip(signal, -32768, 32767).astype(np.int16)
    audible = SpeechOffset(late_ms)
    audible.begin(0, pcm[:960])
    answers = []
    for at in range(960, len(pcm), chunk):
        audible.push(pcm[at : at + chunk])
        if at + chunk > samples(speech_end_ms):
            answers.append(audible.before(samples(speech_end_ms)))
    return answers


def ends_ms(sound: AudibleEnd | None) -> float | None:
    return None if sound is None else 1000 * sound.last / ASR_RATE_HZ


def utterance(speech: Signal) -> tuple[Signal, float]:
    silence = np.zeros(samples(HANG_MS + AFTER_MS))
    return np.concatenate([speech, silence]), 1000 * len(speech) / ASR_RATE_HZ + HANG_MS


@pytest.mark.parametrize("chunk", [160, 320, 512, 333])
def test_the_end_of_a_vowel_is_found_and_stays(chunk: int) -> None:
    signal, vad_ms = utterance(vowel(SPEECH_MS))
    answers = [ends_ms(sound) for sound in heard(signal, vad_ms, chunk)]
    assert len(set(answers)) == 1
    assert answers[0] == pytest.approx(SPEECH_MS, abs=10)


@pytest.mark.parametrize("offset_ms", [0, 1, 2.5, 4, 6, 8.5, 9.9])
def test_the_end_is_found_to_a_part_of_a_window(offset_ms: float) -> None:
    """The result is never late, so the silence counted from there is no longer than required."""
    signal, vad_ms = utterance(vowel(SPEECH_MS + offset_ms))
    signal += noise(1000 * len(signal) / ASR_RATE_HZ, 5)
    last = ends_ms(heard(signal, vad_ms)[-1])
    assert last is not None
    assert 0 <= SPEECH_MS + offset_ms - last <= WINDOW_MS / PARTS


def test_a_delay_of_the_input_moves_the_end_forward() -> None:
    signal, vad_ms = utterance(vowel(SPEECH_MS))
    signal += noise(1000 * len(signal) / ASR_RATE_HZ, 5)
    at_once, late = (heard(signal, vad_ms, late_ms=ms)[-1] for ms in (0, 5))
    assert at_once is not None
    assert late is not None
    assert at_once.last - late.last == samples(5)


@pytest.mark.parametrize(
    "room",
    [
        noise(SPEECH_MS + HANG_MS + AFTER_MS, 5),
        noise(SPEECH_MS + HANG_MS + AFTER_MS, 300),
        noise(SPEECH_MS + HANG_MS + AFTER_MS, 5) + 2000,
        np.sin(np.arange(samples(SPEECH_MS + HANG_MS + AFTER_MS)) * 2 * np.pi * 50 / ASR_RATE_HZ)
        * 1000,
        np.concatenate([np.zeros(samples(400)), noise(SPEECH_MS + HANG_MS + AFTER_MS - 400, 100)]),
    ],
    ids=["room tone", "loud noise", "offset", "hum", "noise that comes up"],
)
def test_noise_hides_at_most_the_fading_end(room: Signal) -> None:
    signal, vad_ms = utterance(vowel(SPEECH_MS))
    answers = [ends_ms(sound) for sound in heard(signal + room, vad_ms)]
    assert all(one is not None and -10 <= one - SPEECH_MS <= FADED_DB for one in answers), answers


@pytest.mark.parametrize("below_db", [20, 28])
def test_a_quiet_consonant_at_the_end_belongs_to_the_word(below_db: float) -> None:
    level = 4000 * 10 ** (-below_db / 20)
    speech = np.concatenate([vowel(SPEECH_MS), hiss(90, level)])
    signal, vad_ms = utterance(speech)
    signal += noise(1000 * len(signal) / ASR_RATE_HZ, 5)
    last = ends_ms(heard(signal, vad_ms)[-1])
    assert last == pytest.approx(SPEECH_MS + 90, abs=10)


def test_a_plosive_after_its_closure_belongs_to_the_word() -> None:
    speech = np.concatenate([vowel(SPEECH_MS), np.zeros(samples(60)), hiss(20, 600)])
    signal, vad_ms = utterance(speech)
    last = ends_ms(heard(signal + noise(1000 * len(signal) / ASR_RATE_HZ, 5), vad_ms)[-1])
    assert last == pytest.approx(SPEECH_MS + 80, abs=10)


def test_a_consonant_that_outlasts_the_vad_is_found_when_it_ends() -> None:
    """While it lasts it could be the room's noise; the result is corrected when it stops."""
    signal = np.concatenate([vowel(SPEECH_MS), hiss(200, 500), np.zeros(samples(300))])
    signal += noise(1000 * len(signal) / ASR_RATE_HZ, 5)
    last = heard(signal, SPEECH_MS + 100)[-1]
    assert last is not None
    assert last.last >= samples(SPEECH_MS + 100 - WINDOW_MS / PARTS)


@pytest.mark.parametrize(
    "signal",
    [np.zeros(samples(1000)), np.full(samples(1000), 900.0), noise(1000, 800), noise(50, 800)],
    ids=["nothing", "an offset", "noise alone", "too little"],
)
def test_without_a_falling_level_there_is_no_result(signal: Signal) -> None:
    assert set(heard(signal, 1000 * len(signal) / ASR_RATE_HZ - 20)) <= {None}


def test_sound_after_the_end_is_reported() -> None:
    silence = noise(HANG_MS + 500, 5)
    signal = np.concatenate([vowel(SPEECH_MS), silence, vowel(100)])
    answers = heard(signal, SPEECH_MS + HANG_MS)
    assert [sound is not None and sound.is_now for sound in answers[:20]] == [False] * 20
    assert answers[-1] is not None
    assert answers[-1].is_now
    assert ends_ms(answers[-1]) == pytest.approx(SPEECH_MS, abs=10)


@pytest.mark.parametrize("chunk", [160, 320, 512, 333])
def test_a_consonant_after_a_closure_extends_the_word(chunk: int) -> None:
    closed, end_ms = np.zeros(samples(50)), SPEECH_MS + 50 + 120
    signal = np.concatenate([vowel(SPEECH_MS), closed, hiss(120, 1500), np.zeros(samples(300))])
    answers = heard(signal, SPEECH_MS, chunk)
    assert answers[-1] is not None
    assert 1000 * answers[-1].after / ASR_RATE_HZ == pytest.approx(end_ms, abs=10)


@pytest.mark.parametrize(
    ("closed_ms", "sound"),
    [(200, hiss(120, 1500)), (30, hiss(120, 15)), (1, np.zeros(samples(300)))],
    ids=["too late", "too quiet", "nothing"],
)
def test_late_or_quiet_sound_does_not_extend_the_word(closed_ms: int, sound: Signal) -> None:
    closed = np.zeros(samples(closed_ms))
    signal = np.concatenate([vowel(SPEECH_MS), closed, sound, np.zeros(samples(300))])
    assert {answer.after for answer in heard(signal, SPEECH_MS + 10) if answer} == {0}


def test_sound_after_a_word_extends_it_for_a_limited_time() -> None:
    puffs = [np.concatenate([np.zeros(samples(50)), hiss(30, 1500)])] * 10
    answers = heard(np.concatenate([vowel(SPEECH_MS), *puffs]), SPEECH_MS)
    latest = max(answer.after for answer in answers if answer)
    assert samples(SPEECH_MS + 160) < latest <= samples(SPEECH_MS + TAIL_MS)


def test_long_speech_takes_bounded_memory() -> None:
    audible = SpeechOffset()
    talk = vowel(100).astype(np.int16)
    for _ in range(3000):
        audible.push(talk)
    assert sum(map(len, audible._unmeasured)) < samples(3200)
    end = 3000 * len(talk)
    quiet = np.zeros(samples(200), np.int16)
    audible.push(quiet)
    sound = audible.before(end + len(quiet) // 2)
    assert sound is not None
    assert abs(sound.last - end) <= samples(10)
