"""How often partials are requested: never more than their share, less under load, and normally
again after it."""

from itertools import pairwise

import pytest

from pipeline.transcription.partials import (
    EVERY_S,
    FIRST_EVERY_S,
    MAX_BACKOFF_S,
    MAX_EMPTY,
    SHARE,
    PartialPacing,
)


def partials(
    cadence: PartialPacing, costs_s: list[float], now: float = 0.0, *, has_words: bool = True
) -> list[float]:
    """Returns when each partial is requested, at the earliest allowed time; a cost below 0 is a
    refusal after that time."""
    asked = []
    for cost_s in costs_s:
        now += cadence.wait_s(now)
        cadence.requested(now)
        asked.append(now)
        now += abs(cost_s)
        if cost_s < 0:
            cadence.refused()
        else:
            cadence.returned(now, has_words=has_words)
    return asked


def test_the_first_partial_is_requested_at_once() -> None:
    assert PartialPacing().wait_s(1000.0) == 0


@pytest.mark.parametrize("cost_s", [0.0, 0.01, 0.05, 0.2, 1.0, 3.0])
def test_partials_take_at_most_their_share(cost_s: float) -> None:
    asked = partials(PartialPacing(), [cost_s] * 20)
    spacing_s = (asked[-1] - asked[0]) / 19
    assert spacing_s == pytest.approx(max(EVERY_S, cost_s / SHARE))
    assert cost_s / spacing_s <= SHARE + 1e-9


def test_the_spacing_rises_at_once_and_falls_slowly() -> None:
    asked = partials(PartialPacing(), [0.05, 1.0, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05])
    spacings = [b - a for a, b in pairwise(asked)]
    assert spacings[1] == pytest.approx(3)
    assert spacings[1:] == sorted(spacings[1:], reverse=True)
    assert spacings[-1] == pytest.approx(EVERY_S)


def test_refusals_increase_the_spacing_until_they_end() -> None:
    asked = partials(PartialPacing(), [0.01] * 3 + [-0.001] * 8 + [0.01] * 8)
    spacings = [b - a for a, b in pairwise(asked)]
    assert spacings[3:8] == pytest.approx([0.4, 0.8, 1.6, 3.2, MAX_BACKOFF_S])
    assert max(spacings) == pytest.approx(MAX_BACKOFF_S)
    assert spacings[-1] == pytest.approx(EVERY_S)


def test_partials_follow_sooner_until_words_are_found() -> None:
    pacing, cost_s = PartialPacing(), 0.15
    first = partials(pacing, [cost_s], has_words=False)
    assert pacing.every_s == FIRST_EVERY_S
    (second,) = partials(pacing, [cost_s], first[0] + cost_s)
    assert second - first[0] == pytest.approx(cost_s), "as soon as the one before returned"
    assert pacing.every_s == EVERY_S
    assert pacing.wait_s(second) == pytest.approx(cost_s / SHARE)


def test_partials_of_sound_without_words_keep_to_their_share_after_the_first() -> None:
    asked = partials(PartialPacing(), [0.15] * (MAX_EMPTY + 3), has_words=False)
    spacings = [b - a for a, b in pairwise(asked)]
    assert spacings == pytest.approx([0.15] * (MAX_EMPTY - 1) + [0.15 / SHARE] * 3)
