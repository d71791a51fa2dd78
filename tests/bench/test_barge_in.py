"""What the server counted is read as it counts: in buckets, since the measurement began."""

import pytest

from bench.barge_in import BUCKET, counts, percentile_ms


def shown(*cumulative: float) -> dict[str, float]:
    bounds = ("0.01", "0.02", "0.06", "+Inf")
    named = {f'{BUCKET}{bound}"}}': count for bound, count in zip(bounds, cumulative, strict=True)}
    return {**named, "earshot_sessions": 1}


def test_percentiles_are_the_buckets_bounds() -> None:
    found = list(counts(shown(5, 5, 5, 5), shown(15, 24, 25, 25)))
    assert found == [(10, 10), (20, 19), (60, 20), (float("inf"), 20)]
    assert percentile_ms(found, 50) == 10
    assert percentile_ms(found, 95) == 20
    assert percentile_ms(found, 96) == 60


def test_nothing_spoken_over_is_no_result() -> None:
    same = shown(5, 5, 5, 5)
    with pytest.raises(ValueError, match="no answer"):
        percentile_ms(list(counts(same, same)), 95)
