"""Where long recordings are cut: every speech sample is in one segment, and no segment exceeds the
window."""

import random
from itertools import pairwise

import numpy as np
import pytest

from core.audio import Pcm
from pipeline.transcription.no_speech import NoSpeechCriterion
from pipeline.transcription.segmenter import (
    LONG_PAUSE_MS,
    PAD_MS,
    AudioSegment,
    Segmenter,
    quietest,
)
from tests.pipeline.fakes import LoudVad
from tests.pipeline.scripted import MS, FaintVad, audio

WINDOW_MS = 10_000


def cut(pcm: Pcm, block_ms: int = 1000) -> list[AudioSegment]:
    cutter = Segmenter(LoudVad(), WINDOW_MS * MS)
    pieces: list[AudioSegment] = []
    for at in range(0, len(pcm), block_ms * MS):
        pieces += cutter.push(pcm[at : at + block_ms * MS])
    return pieces + cutter.end()


def spans_ms(pieces: list[AudioSegment]) -> list[tuple[float, float]]:
    return [(piece.start / MS, (piece.start + len(piece.pcm)) / MS) for piece in pieces]


@pytest.mark.parametrize(
    ("script", "spans"),
    [
        ([], []),
        ([(0, 500)], [(0, 500)]),
        ([(0, WINDOW_MS)], [(0, WINDOW_MS)]),
        ([(0, 3 * WINDOW_MS)], []),
        ([(0, 2000), (1000, 500), (0, 7500)], [(0, WINDOW_MS)]),
        ([(0, 5000), (1000, 500), (0, 15_000)], [(5000 - PAD_MS, 5500 + PAD_MS)]),
        ([(1000, 1000), (0, 9500)], [(0, 1300)]),
        ([(0, 9500), (1000, 1000)], [(9200, 10_500)]),
        # A click is no speech, but it belongs to speech near it.
        ([(0, 12_000), (1000, 20), (0, 12_000)], []),
        ([(0, 12_000), (1000, 20), (0, 500), (1000, 400), (0, 9000)], [(11_700, 13_220)]),
        # A long pause ends a segment, however short; a shorter one does not.
        (
            [(1000, 1000), (0, LONG_PAUSE_MS), (1000, 1000), (0, 2980), (1000, 4000)],
            [(0, 1300), (3700, 11_980)],
        ),
        # The longest pause of the last third.
        (
            [(1000, 7000), (0, 300), (1000, 700), (0, 400), (1000, 400), (0, 200), (1000, 9000)],
            [(0, 8200), (8200, 18_000)],
        ),
        # No pause there: the last one before it, but not in the first third.
        (
            [(1000, 2000), (0, 800), (1000, 1200), (0, 200), (1000, 10_000)],
            [(0, 4100), (4100, 14_000), (14_000, 14_200)],
        ),
    ],
)
@pytest.mark.parametrize("block_ms", [20, 1000, 60_000])
def test_segments_by_their_pauses(
    script: list[tuple[int, float]],
    spans: list[tuple[float, float]],
    block_ms: int,
) -> None:
    pcm = audio((0, 0), *script)
    assert spans_ms(cut(pcm, block_ms)) == spans


def test_speech_without_a_pause_is_cut_where_it_is_quietest() -> None:
    pcm = audio((3000, 8000), (800, 240), (3000, 8000))
    first, second = cut(pcm)
    assert 8000 * MS < first.start + len(first.pcm) < 8240 * MS
    assert second.start == first.start + len(first.pcm)


def random_script(dice: random.Random) -> list[tuple[int, float]]:
    """Returns speech from 100 ms to 25 s and pauses from one frame to 12 s, in whole frames."""
    script: list[tuple[int, float]] = []
    for _ in range(dice.randint(1, 12)):
        speech_ms = 20 * round(dice.choice([5, 50, 300, 1250]) * dice.uniform(1, 1.5))
        pause_ms = 20 * round(dice.choice([1, 4, 20, 140, 400]) * dice.uniform(1, 1.5))
        script += [(dice.choice([1000, 2000, 3000]), speech_ms), (0, pause_ms)]
    return script[dice.randint(0, 1) :]


@pytest.mark.many
@pytest.mark.parametrize("seed", range(60))
def test_every_speech_sample_is_in_exactly_one_segment(seed: int) -> None:
    dice = random.Random(seed)
    pcm = audio(*random_script(dice), (0, dice.choice([0, 7, 5000])))
    pieces = cut(pcm, dice.choice([20, 333, 1000, 40_000]))
    taken = np.zeros(len(pcm), np.int64)
    for piece in pieces:
        end = piece.start + len(piece.pcm)
        taken[piece.start : end] += 1
        assert 0 < len(piece.pcm) <= WINDOW_MS * MS
        assert np.array_equal(piece.pcm, pcm[piece.start : end])
        assert piece.start < piece.speech_end <= end or len(pieces) == 1
    assert taken.max(initial=0) <= 1
    assert (taken[pcm != 0] == 1).all()
    assert all(a.start < b.start for a, b in pairwise(pieces))


def test_the_tail_equals_the_last_segment_without_its_silence() -> None:
    cutter = Segmenter(LoudVad(), WINDOW_MS * MS)
    cutter.push(audio((1000, 500), (0, 80)))
    assert cutter.tail() is None
    cutter.push(audio((0, 60)))
    tail = cutter.tail()
    assert tail is not None
    cutter.push(audio((0, 900)))
    (last,) = cutter.end()
    assert (tail.start, tail.speech_end) == (last.start, last.speech_end) == (0, 500 * MS)
    assert np.array_equal(tail.pcm, last.pcm[: len(tail.pcm)])


def test_the_buffer_stays_bounded() -> None:
    cutter = Segmenter(LoudVad(), WINDOW_MS * MS)
    for level in [1000, 0, 0, 0, 1000] * 40:
        cutter.push(audio((level, 1000)))
        assert len(cutter._buffer) <= (WINDOW_MS + 1000) * MS


def test_quietest_takes_the_last_of_equals() -> None:
    assert quietest(audio((1000, 500), (0, 200), (1000, 500), (0, 200), (1000, 500))) == 1300 * MS


@pytest.mark.parametrize("gap_ms", [20, 40, 80, 160])
def test_a_gap_between_two_words_is_cut_in_its_middle(gap_ms: int) -> None:
    at = quietest(audio((1000, 700), (0, gap_ms), (1000, 700)))
    assert 700 * MS <= at <= (700 + gap_ms) * MS


@pytest.mark.parametrize("most", [0.45, 0.003])
@pytest.mark.parametrize(
    ("judge", "spans"),
    [
        (NoSpeechCriterion.BOTH, []),
        (NoSpeechCriterion.RECOGNISER, [(4700, 9300), (12_700, 18_300)]),
        (NoSpeechCriterion.NONE, [(0, 9900), (9900, 19_800), (19_800, 22_000)]),
    ],
)
def test_the_criterion_decides_what_is_left_out(
    judge: NoSpeechCriterion, spans: list[tuple[float, float]], most: float
) -> None:
    """A whisper in a recording beyond the window is left to the recogniser if that can judge."""
    cutter = Segmenter(FaintVad(most), WINDOW_MS * MS, judge)
    script = (0, 5000), (1000, 4000), (0, 4000), (1000, 5000), (0, 4000)
    assert spans_ms(cutter.push(audio(*script)) + cutter.end()) == spans


@pytest.mark.parametrize("judge", NoSpeechCriterion)
def test_the_tail_of_a_short_recording_is_known_in_a_pause(
    judge: NoSpeechCriterion,
) -> None:
    cutter = Segmenter(LoudVad(), WINDOW_MS * MS, judge)
    cutter.push(audio((1000, 500), (0, 200)))
    tail = cutter.tail()
    assert tail is not None
    cutter.push(audio((0, 900)))
    (last,) = cutter.end()
    assert (tail.start, tail.speech_end) == (last.start, last.speech_end) == (0, 500 * MS)
