"""Measurement of turn taking: pauses in a recording, ends of a turn, and operating points."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from bench.measurements.material.remembered_results import RememberedResults, RememberingRecogniser
from bench.measurements.turn_taking.clips import LEAD_MS, ORDERS, SpokenTurn, spoken_turn
from bench.measurements.turn_taking.operating_points import (
    OperatingPoint,
    budget_row,
    curve,
    cut_share_at,
    delay_at,
    frontier,
)
from bench.measurements.turn_taking.session import hear, outcome
from bench.server.stub_engines import tts
from core.audio import ASR_RATE_HZ, PTIME_MS, Pcm, ms_to_samples, samples_to_ms, silence
from engines.base import AsrInfo, AsrItem, AsrResult, Vad
from pipeline.shared.settings import TurnDetection

pytestmark = pytest.mark.many

LOUD = 1000


class LevelVad:
    """A `Vad` that takes loud sound for speech."""

    frame_samples = ms_to_samples(PTIME_MS, ASR_RATE_HZ)

    def push(self, pcm: Pcm) -> float:
        return float(np.abs(pcm).max() > LOUD)

    def reset(self) -> None: ...


class LevelVadEngine:
    name = "level"

    def open(self) -> Vad:
        return LevelVad()


class GrowingAsr:
    """An `AsrModel` that hears one word in each 300 ms of sound."""

    info = AsrInfo(
        "growing", "growing", ("en",), max_batch=1, is_incremental=False, rejects_nothing=True
    )

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        return [AsrResult(self.words(item.pcm), 1.0, "en") for item in items]

    def words(self, pcm: Pcm) -> str:
        loud_ms = samples_to_ms(int(np.sum(np.abs(pcm.astype(np.int32)) > LOUD)), ASR_RATE_HZ)
        return " ".join(f"word{number}" for number in range(round(loud_ms / 300)))

    def forget(self, utterance: str) -> None: ...

    def close(self) -> None: ...


def voice(length_ms: float) -> Pcm:
    tone = tts.tone(2 * length_ms)  # at 24 kHz: more than enough samples at 16 kHz
    return tone[: ms_to_samples(length_ms, ASR_RATE_HZ)]


def recording(*pauses_ms: int) -> Pcm:
    """Returns pieces of voice of 600 ms with these pauses between them."""
    pieces = [voice(600)]
    for pause_ms in pauses_ms:
        pieces += [silence(pause_ms, ASR_RATE_HZ), voice(600)]
    return np.concatenate(pieces)


def turn(*pauses_ms: int) -> SpokenTurn:
    found = spoken_turn("t", ORDERS, recording(*pauses_ms), LevelVadEngine(), is_whole=True)
    assert found is not None
    return found


def at(ms: float) -> int:
    return ms_to_samples(ms, ASR_RATE_HZ)


def test_pauses_of_200_ms_and_more_are_found() -> None:
    spoken = turn(100, 700)
    begin, end = LEAD_MS + 600 + 100 + 600, LEAD_MS + 600 + 100 + 600 + 700
    assert spoken.pauses == ((at(begin), at(end)),)
    assert spoken.end == at(end + 600)


def test_a_recording_without_speech_is_no_turn() -> None:
    assert spoken_turn("t", ORDERS, silence(500, ASR_RATE_HZ), LevelVadEngine(), is_whole=True) is (
        None
    )


def played(spoken: SpokenTurn, silence_ms: int) -> tuple[int, int, int, int]:
    recogniser = RememberingRecogniser(GrowingAsr(), RememberedResults(), decode_s=0.1)
    detection = TurnDetection(silence_ms=silence_ms)
    result = hear(spoken, detection, LevelVadEngine(), recogniser, None)
    assert result.delay_ms is not None
    assert result.answer_ms is not None
    assert result.delay_ms == pytest.approx(silence_ms, abs=2 * PTIME_MS)
    assert result.answer_ms >= result.delay_ms
    assert result.other_cuts == 0
    return result.cut_pauses, result.joined, result.answers, result.interjections


@pytest.mark.parametrize(
    ("pause_ms", "silence_ms", "expected"),
    [
        (400, 500, (0, 0, 1, 0)),
        (800, 500, (1, 1, 1, 1)),
        (2500, 500, (1, 0, 2, 1)),
    ],
)
def test_a_turn_that_is_cut_at_a_pause_is_joined_if_the_pause_is_short(
    pause_ms: int, silence_ms: int, expected: tuple[int, int, int, int]
) -> None:
    assert played(turn(pause_ms), silence_ms) == expected


def test_ends_of_a_turn_are_counted_by_their_position() -> None:
    spoken = SpokenTurn(
        "t", ORDERS, silence(0, ASR_RATE_HZ), ((at(1000), at(1500)),), at(3000), True
    )
    ends = [(at(1200), "a"), (at(2000), "b"), (at(3400), "c")]
    texts = {"a": "turn on", "b": "turn on the", "c": "turn on the light"}
    found = outcome(spoken, ends, {"a"}, texts, [at(2500), at(3600)])
    assert (found.cut_pauses, found.other_cuts, found.joined, found.answers) == (1, 1, 1, 2)
    assert (found.interjections, found.delay_ms, found.answer_ms) == (1, 400, 600)


def test_a_turn_that_never_ends_has_no_delay() -> None:
    spoken = SpokenTurn("t", ORDERS, silence(0, ASR_RATE_HZ), (), at(3000), True)
    found = outcome(spoken, [], set(), {}, [])
    assert (found.delay_ms, found.answer_ms, found.answers) == (None, None, 0)


def points(*pairs: tuple[float, float]) -> Sequence[OperatingPoint]:
    return [OperatingPoint(delay_ms, share) for delay_ms, share in pairs]


MEASURED = points((400, 0.2), (200, 0.4), (450, 0.3), (800, 0.04))


def test_a_setting_that_is_worse_in_both_measures_is_not_on_the_frontier() -> None:
    assert frontier(MEASURED) == points((200, 0.4), (400, 0.2), (800, 0.04))


@pytest.mark.parametrize(
    ("delay_ms", "share"), [(100, None), (200, 0.4), (300, 0.3), (600, 0.12), (2000, 0.04)]
)
def test_cuts_at_a_delay_are_interpolated(delay_ms: float, share: float | None) -> None:
    assert cut_share_at(MEASURED, delay_ms) == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(("share", "delay_ms"), [(0.01, None), (0.3, 300), (0.12, 600), (0.5, 200)])
def test_the_delay_at_a_share_of_cuts_is_interpolated(share: float, delay_ms: float | None) -> None:
    assert delay_at(MEASURED, share) == (None if delay_ms is None else pytest.approx(delay_ms))


def test_the_row_has_a_dash_where_no_setting_reaches_a_budget() -> None:
    assert budget_row(MEASURED) == ["30.0 %", "12.0 %", "775 ms", "650 ms"]
    assert budget_row(points((700, 0.3))) == ["-", "-", "-", "-"]


def test_the_curve_marks_each_setting() -> None:
    lines = list(curve({"slow": points((1000, 0.0)), "fast": points((500, 0.5))}))
    assert lines[0].index("x") < lines[-4].index("o")
    assert lines[-1].split() == ["o:", "slow,", "x:", "fast"]


def rows(lines: Iterator[str]) -> int:
    return sum("|" in line for line in lines)


def test_settings_at_the_same_point_are_marked_once() -> None:
    both = points((1000, 0.5))
    lines = list(curve({"one": both, "two": both}))
    assert sum(line.count("*") for line in lines) == 1
    assert rows(iter(lines)) == 17
