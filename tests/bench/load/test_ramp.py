"""A load that rises: its requests, what a listener hears, and the files that it writes."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.bodies import SOUND_RATE_HZ, PlayedSound
from bench.load.clients import LoadAnswer
from bench.load.ramp import Ramp, RampAnswer, rates
from bench.load.ramp_files import DETAILS, SECONDS, rate_table, write_files

SECOND = bytes(2 * SOUND_RATE_HZ)


def test_rates_rise_by_a_step_up_to_the_last() -> None:
    assert rates(0.5, 5, 0.5) == tuple(half / 2 for half in range(1, 11))
    assert rates(1, 2.9, 1) == (1, 2)
    assert rates(3, 3, 1) == (3,)


@pytest.mark.parametrize(
    ("first", "last", "step"),
    [(0, 5, 1), (5, 1, 1), (1, 5, 0), (1, 5, -1), (1, float("inf"), 1), (1, 1e6, 1)],
)
def test_rates_that_make_no_ramp_are_refused(first: float, last: float, step: float) -> None:
    with pytest.raises(ValueError, match=r"above 0|are allowed"):
        rates(first, last, step)


def test_requests_of_a_ramp_are_spread_evenly_at_each_rate() -> None:
    assert Ramp((1.0, 2.0), hold_s=2).starts() == [
        *((0.0, 1.0), (1.0, 1.0)),
        *((2.0, 2.0), (2.5, 2.0), (3.0, 2.0), (3.5, 2.0)),
    ]
    assert Ramp((0.1,), hold_s=2).starts() == [(0.0, 0.1)], "each rate is tried"


def test_a_player_waits_where_sound_comes_too_late() -> None:
    sound = PlayedSound()
    sound.push(b"", 9.0)
    assert (sound.first_s, sound.length_s) == (None, 0.0)
    sound.push(SECOND, 10.0)
    sound.push(SECOND, 10.1)  # in time
    assert [sound.first_s, sound.length_s, sound.gap_s] == pytest.approx([10.0, 2.0, 0.0])
    sound.push(SECOND, 12.5)  # half a second after the end of what was there
    sound.push(SECOND, 13.75)  # 13.5 would have been in time, with the pause before
    assert sound.gap_s == pytest.approx(0.75)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 4)), min_size=1, max_size=20))
def test_the_gap_equals_that_of_a_simulated_player(chunks: list[tuple[float, int]]) -> None:
    sound, now, waited, has_until = PlayedSound(), 0.0, 0.0, 0.0
    for number, (pause_s, seconds) in enumerate(chunks):
        now += pause_s
        sound.push(SECOND * seconds, now)
        if number and now > has_until:
            waited += now - has_until
        has_until = max(has_until, now) + seconds
    assert sound.gap_s == pytest.approx(waited)


def test_files_have_a_line_for_each_request_and_each_second(tmp_path: Path) -> None:
    answers = [
        RampAnswer(0.5, 0.1, LoadAnswer(900.0, "", 40.0, sound_s=2.0, gap_ms=0.0)),
        RampAnswer(0.5, 2.1, LoadAnswer(20.0, "429")),
        RampAnswer(1.0, 2.6, LoadAnswer(800.0, "", 60.0, sound_s=2.0, gap_ms=3.0)),
    ]
    write_files(tmp_path / "new", {"rates_per_s": (0.5, 1.0)}, answers)
    assert json.loads((tmp_path / "new/config.json").read_text()) == {"rates_per_s": [0.5, 1.0]}

    def table(name: str) -> list[list[str]]:
        with (tmp_path / "new" / name).open(newline="") as file:
            return list(csv.reader(file))

    assert table("detailed_results.csv") == [
        list(DETAILS),
        ["0", "0.5", "0.100", "ok", "40.0", "900.0", "2.000", "0.0"],
        ["1", "0.5", "2.100", "429", "", "20.0", "0.000", "0.0"],
        ["2", "1", "2.600", "ok", "60.0", "800.0", "2.000", "3.0"],
    ]
    assert table("time_series_metrics.csv") == [
        list(SECONDS),
        ["0", "1", "100.0", "40.0", "40.0", "40.0", "0.0", "40.0"],
        ["2", "2", "50.0", "60.0", "60.0", "60.0", "0.0", "60.0"],
    ]
    drawn = (tmp_path / "new/ramp.svg").read_text()
    assert (drawn.count('class="ok"'), drawn.count('class="bad"')) == (2, 1)
    assert "| 0.5 | 2 | 1 | 1 x 429 | 40.0 | 40.0 | 0.0 | 20.0 |" in rate_table(answers)
