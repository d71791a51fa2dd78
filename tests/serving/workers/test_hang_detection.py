"""The time after which a call counts as hung."""

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ
from engines.base import AsrItem
from serving.workers.hang_detection import FACTOR, FIRST_CALL_S, LEAST_S, PER_AUDIO_S, HangDetector


def audio(seconds: float) -> AsrItem:
    return AsrItem("item", np.zeros(round(seconds * ASR_RATE_HZ), np.int16), is_final=True)


def warm() -> HangDetector:
    """Returns a detector that has seen its first call."""
    patience = HangDetector()
    patience.learn([audio(1)], 3.0)
    return patience


def test_the_first_call_may_take_long_and_more_audio_longer() -> None:
    for patience in (HangDetector(), warm()):
        assert patience.limit_s([audio(0)]) == FIRST_CALL_S
        assert patience.limit_s([audio(30), audio(30)]) == FIRST_CALL_S + 60 * PER_AUDIO_S


def test_measured_answers_shorten_the_limit() -> None:
    patience = warm()
    patience.learn([audio(2)], 0.1)
    assert patience.limit_s([audio(2)]) == pytest.approx(LEAST_S + FACTOR * 0.1)
    assert patience.limit_s([audio(30)]) == pytest.approx(LEAST_S + FACTOR * 1.5)
    patience.learn([audio(1)], 0.001)  # a faster one changes nothing
    assert patience.limit_s([audio(2)]) == pytest.approx(LEAST_S + FACTOR * 0.1)


def test_a_short_item_may_take_as_long_as_a_padded_one() -> None:
    patience = warm()
    patience.learn([audio(30)], 2.0)
    assert patience.limit_s([audio(1)]) == pytest.approx(LEAST_S + FACTOR * 2.0)


def test_the_limit_is_never_longer_than_for_the_first_call() -> None:
    patience = warm()
    patience.learn([audio(1)], 30.0)
    assert patience.limit_s([audio(1)]) == FIRST_CALL_S + PER_AUDIO_S
