"""Tools for tasks: waits that grow with each failure."""

import pytest

from core.tasks import Backoff


def test_waits_grow_with_each_failure_and_the_last_one_repeats() -> None:
    backoff = Backoff((0.5, 2.0, 8.0))
    assert [backoff.fail() for _ in range(5)] == [0.5, 2.0, 8.0, 8.0, 8.0]
    assert backoff.failures == 5
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.fail() == 0.5


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff.doubling(1.0, 60.0, stable_after_s=10.0)
    assert [backoff.fail() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize(("lasted_s", "wait_s"), [(10.0, 4.0), (10.1, 1.0)])
def test_what_ran_for_long_begins_a_new_row_of_failures(lasted_s: float, wait_s: float) -> None:
    backoff = Backoff.doubling(1.0, 60.0, stable_after_s=10.0)
    backoff.fail()
    backoff.fail()
    assert backoff.fail(lasted_s) == wait_s
