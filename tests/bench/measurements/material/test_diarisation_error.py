"""The diarisation error rate of turns that a test wrote down."""

import pytest

from bench.measurements.material.diarisation_error import Turn, diarisation_error

REAL: list[Turn] = [(0, 4000, "anna"), (5000, 9000, "ben")]


@pytest.mark.parametrize(
    ("found", "missed_ms", "false_alarm_ms", "confusion_ms"),
    [
        ([(0, 4000, "B"), (5000, 9000, "A")], 0, 0, 0),
        ([], 8000, 0, 0),
        ([(0, 9000, "A")], 0, 1000, 4000),
        ([(1000, 4000, "A"), (5000, 9500, "B")], 1000, 500, 0),
        ([(0, 4000, "A"), (5000, 7000, "A"), (7000, 9000, "B")], 0, 0, 2000),
        ([(0, 3000, "A"), (3000, 4000, "C"), (5000, 9000, "B")], 0, 0, 1000),
        ([(0, 4000, "A"), (0, 4000, "C"), (5000, 9000, "B")], 0, 4000, 0),
    ],
)
def test_each_kind_of_error_is_counted(
    found: list[Turn], missed_ms: float, false_alarm_ms: float, confusion_ms: float
) -> None:
    error = diarisation_error(REAL, found)
    assert error.speech_ms == 8000
    assert (error.missed_ms, error.false_alarm_ms) == (missed_ms, false_alarm_ms)
    assert error.confusion_ms == confusion_ms
    assert error.rate == (missed_ms + false_alarm_ms + confusion_ms) / 8000


def test_two_people_at_once_are_both_to_be_found() -> None:
    real: list[Turn] = [(0, 4000, "anna"), (3000, 6000, "ben")]
    error = diarisation_error(real, [(0, 3500, "A"), (3500, 6000, "B")])
    assert (error.speech_ms, error.missed_ms, error.confusion_ms) == (7000, 1000, 0)


def test_a_collar_leaves_the_edges_out() -> None:
    found: list[Turn] = [(200, 4200, "A"), (4800, 9000, "B")]
    assert diarisation_error(REAL, found).rate == 600 / 8000
    error = diarisation_error(REAL, found, collar_ms=250)
    assert (error.speech_ms, error.rate) == (7000, 0)
    assert diarisation_error([], []).rate == 0
