"""The load of a day, and replicas that follow a load."""

import pytest

from bench.simulate.autoscaling import Autoscaler, crowd, daily_load, scale


def test_a_day_has_its_mean_and_its_peak() -> None:
    day = daily_load(mean_per_s=231, peak=5)
    assert sum(day) / len(day) == pytest.approx(231)
    assert max(day) == pytest.approx(5 * 231, rel=0.01)


def test_a_steady_load_waits_for_nothing() -> None:
    found = scale([100.0] * 600, 10, Autoscaler(delay_s=60))
    assert (found.refused, found.late, found.longest_wait_s) == (0, 0, 0)
    assert found.replica_s == 13 * 600


def test_a_longer_delay_refuses_more_of_a_crowd() -> None:
    load = crowd(100, 3, 30, 900)
    refused = [scale(load, 10, Autoscaler(delay_s)).refused for delay_s in (0, 60, 300)]
    assert refused[0] < refused[1] < refused[2]


def test_turns_are_conserved() -> None:
    load = crowd(100, 3, 30, 900)
    found = scale(load, 10, Autoscaler(300))
    assert found.turns == pytest.approx(sum(load))
    assert found.late + found.refused <= found.turns
