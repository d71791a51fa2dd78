"""From windows and their vectors to spans of speakers with names."""

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, Pcm
from core.conversation.speakers import SpeakerProfile, VoiceThresholds, VoiceVector
from pipeline.transcription.diarisation.timeline import find_speakers
from pipeline.transcription.diarisation.windows import (
    Window,
    segment_windows,
    speech_runs,
    windows_of,
)
from pipeline.transcription.segmenter import Segmenter
from tests.pipeline.fakes import LoudVad
from tests.pipeline.scripted import MS, audio

ONE, TWO, THREE = np.eye(3, dtype=np.float32)
MIXED: VoiceVector = ((ONE + TWO) / np.sqrt(2)).astype(np.float32)


def span(start_ms: int, end_ms: int) -> tuple[int, int]:
    return start_ms * MS, end_ms * MS


def runs(*lengths_ms: int, pause_ms: int = 300) -> list[Window]:
    """Returns the windows of runs with these lengths."""
    windows: list[Window] = []
    at_ms = 0
    for length_ms in lengths_ms:
        windows += windows_of(span(at_ms, at_ms + length_ms))
        at_ms += length_ms + pause_ms
    return windows


def spans(
    windows: list[Window],
    vectors: list[VoiceVector | None],
    *known: list[SpeakerProfile],
) -> list[tuple[float, float, str]]:
    found = find_speakers(windows, vectors, known)
    return [(one.start_ms, one.end_ms, one.speaker) for one in found]


@pytest.mark.parametrize(
    ("length_ms", "windows_ms"),
    [
        (100, [(0, 100)]),
        (1500, [(0, 1500)]),
        (1600, [(100, 1600)]),
        (2250, [(0, 1500), (750, 2250)]),
        (3200, [(0, 1500), (750, 2250), (1700, 3200)]),
    ],
)
def test_windows_cover_a_run(length_ms: int, windows_ms: list[tuple[int, int]]) -> None:
    found = windows_of(span(0, length_ms))
    assert [(window.start // MS, window.end // MS) for window in found] == windows_ms


def test_runs_end_at_pauses_and_not_within_words() -> None:
    def frames(*probabilities: float) -> list[tuple[int, int, float]]:
        return [(i * 100 * MS, (i + 1) * 100 * MS, p) for i, p in enumerate(probabilities)]

    assert speech_runs(frames(0, 0.4, 0.9, 0.4, 0, 0, 0.9, 0, 0, 0, 0.9), 0) == [
        span(200, 700),
        span(1000, 1100),
    ]
    assert speech_runs(frames(0.9, 0.9, 0.9), 150 * MS) == [span(150, 300)]
    assert speech_runs([], 0) == []


def test_windows_of_a_recording_hold_its_sound() -> None:
    segmenter = Segmenter(LoudVad(), 5000 * MS)
    pcm = audio((0, 500), (1000, 2000), (0, 3500), (2000, 300), (0, 3000), (3000, 700), (0, 500))
    heard: list[tuple[float, float, Pcm | None]] = []
    for segment in (*segmenter.push(pcm), *segmenter.end()):
        heard += [(w.start / MS, w.end / MS, sound) for w, sound in segment_windows(segment)]
    assert [(start, end) for start, end, _ in heard] == [
        (500, 2000),
        (1000, 2500),
        (6000, 6300),
        (9300, 10_000),
    ]
    levels = [None if sound is None else {*map(int, sound)} for *_, sound in heard]
    assert levels == [{1000}, {1000}, None, {3000}]


def test_speakers_have_letters_in_the_order_of_their_first_words() -> None:
    windows = runs(1500, 1500, 1500, 1500, 1500, 1500)
    assert spans(windows, [TWO, ONE, TWO, THREE, ONE, THREE]) == [
        (0, 1500, "A"),
        (1800, 3300, "B"),
        (3600, 5100, "A"),
        (5400, 6900, "C"),
        (7200, 8700, "B"),
        (9000, 10_500, "C"),
    ]


def test_a_change_within_a_run_is_in_the_middle_between_two_windows() -> None:
    windows = runs(4500)
    assert [window.start // MS for window in windows] == [0, 750, 1500, 2250, 3000]
    assert spans(windows, [ONE, ONE, MIXED, TWO, TWO]) in (
        [(0, 2625, "A"), (2625, 4500, "B")],
        [(0, 1875, "A"), (1875, 4500, "B")],
    )


def test_one_odd_window_is_no_speaker_and_no_change() -> None:
    assert spans(runs(4500), [ONE, ONE, THREE, ONE, ONE]) == [(0, 4500, "A")]
    nearly: VoiceVector = np.array([0.7, 0.714, 0], np.float32)
    windows = runs(4500, 1500, 1500)
    assert spans(windows, [ONE, ONE, nearly, ONE, ONE, TWO, TWO]) == [
        (0, 4500, "A"),
        (4800, 8100, "B"),
    ]


def test_a_small_group_near_a_voice_is_that_voice() -> None:
    """The mean cosine with the large group is 0.66, that of the two means is 0.71."""
    small: list[VoiceVector | None] = [
        np.array([0.66, 0.751, 0], np.float32),
        np.array([0.66, 0.418, 0.624], np.float32),
    ]
    few = spans(runs(*[1500] * 8), [*[ONE] * 6, *small])
    assert {name for *_, name in few} == {"A"}
    many = spans(runs(*[1500] * 12), [*[ONE] * 6, *small * 3])
    assert [name for *_, name in many] == ["A", "B"]


def test_speech_that_is_too_short_is_that_of_a_neighbour() -> None:
    windows = runs(1500, 1500, 300, 1500, 1500)
    found = spans(windows, [ONE, ONE, None, TWO, TWO])
    assert found in (
        [(0, 3300, "A"), (3600, 7500, "B")],
        [(0, 3900, "A"), (4200, 7500, "B")],
    )
    assert spans(runs(300, 300, pause_ms=600), [None, None]) == [(0, 300, "A"), (900, 1200, "A")]
    assert spans([], []) == []


@pytest.mark.parametrize(("pause_ms", "count"), [(500, 1), (510, 2)])
def test_a_short_pause_of_one_speaker_is_speech(pause_ms: int, count: int) -> None:
    assert len(spans(runs(1500, 1500, pause_ms=pause_ms), [ONE, ONE])) == count


def test_known_people_have_their_names() -> None:
    windows = runs(1500, 1500, 1500, 1500, 1500, 1500)
    vectors: list[VoiceVector | None] = [ONE, TWO, THREE, ONE, TWO, THREE]
    anna, agent = SpeakerProfile("spk_1", "Anna", ONE), SpeakerProfile("", "agent", TWO)
    also_two, letter = SpeakerProfile("spk_2", "Ben", TWO), SpeakerProfile("spk_3", "A", -THREE)
    # The request's names come first, and a letter that is a known name is not used again.
    found = spans(windows, vectors, [agent], [anna, also_two, letter])
    assert [name for *_, name in found] == ["Anna", "agent", "B"] * 2


def test_two_groups_of_one_known_person_are_one_speaker() -> None:
    windows = runs(1500, 1500, 1500, 1500)
    anna = SpeakerProfile("spk_1", "Anna", ((ONE + TWO) / np.sqrt(2)).astype(np.float32))
    near = [(0.9 * one + 0.44 * MIXED).astype(np.float32) for one in (ONE, TWO)]
    unit = [(one / np.linalg.norm(one)).astype(np.float32) for one in near]
    strict = VoiceThresholds(group=0.99)
    found = find_speakers(windows, [unit[0], unit[1]] * 2, [[anna]], strict)
    assert {one.speaker for one in found} == {"Anna"}


def test_more_than_26_speakers_have_names() -> None:
    count = 28
    voices = np.eye(count, dtype=np.float32)
    found = find_speakers(runs(*[1500] * 2 * count), [*voices, *voices])
    assert [one.speaker for one in found][24:count] == ["Y", "Z", "AA", "AB"]
    assert found[0].end_ms == 1500 * MS * 1000 / ASR_RATE_HZ
