"""Probabilities become waits, and two probabilities are combined into one."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.user_turn.speech_detection.endpointing import (
    Eagerness,
    combine_probabilities,
    endpoint_delay_ms,
)

EAGERNESS: tuple[Eagerness, ...] = get_args(Eagerness)

SURE = st.floats(0, 1)
MAYBE = st.none() | SURE


@given(st.sampled_from(EAGERNESS), SURE, SURE)
def test_a_higher_probability_means_a_shorter_wait(
    eagerness: Eagerness, a: float, b: float
) -> None:
    low, high = sorted((a, b))
    assert endpoint_delay_ms(eagerness, low) >= endpoint_delay_ms(eagerness, high) >= 120


@pytest.mark.parametrize("probability", [None, 0.0, 0.3, 0.5, 0.9, 1.0])
def test_more_eagerness_means_a_shorter_wait(probability: float | None) -> None:
    waits = [endpoint_delay_ms(one, probability) for one in ("low", "medium", "auto", "high")]
    assert waits == sorted(waits, reverse=True)


def test_without_evidence_the_waits_are_fixed() -> None:
    waits = {one: endpoint_delay_ms(one, None) for one in EAGERNESS}
    assert waits == {"low": 900, "medium": 600, "high": 300, "auto": 450}
    assert waits == {one: endpoint_delay_ms(one, 0.5) for one in EAGERNESS}
    assert (endpoint_delay_ms("auto", 1), endpoint_delay_ms("auto", 0)) == (120, 600)


@given(MAYBE, MAYBE)
def test_both_probabilities_count_equally(audio: float | None, text: float | None) -> None:
    both = combine_probabilities(audio, text)
    assert both == pytest.approx(combine_probabilities(text, audio))
    assert (both is None) == (audio is None and text is None)
    assert both is None or 0 < both < 1


@given(st.floats(0.51, 1), SURE)
def test_a_probability_above_one_half_increases_the_other(yes: float, other: float) -> None:
    both = combine_probabilities(yes, other)
    alone = combine_probabilities(None, other)
    assert both is not None
    assert alone is not None
    assert both > alone


def test_opposite_probabilities_cancel_each_other() -> None:
    assert combine_probabilities(1.0, 0.0) == pytest.approx(0.5)
    assert combine_probabilities(0.8, None) == pytest.approx(0.8)
    assert combine_probabilities(0.8, 0.5) == pytest.approx(0.8)
