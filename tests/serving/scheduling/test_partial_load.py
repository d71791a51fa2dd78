"""The rationing of partials: they have a share of their own, and only what urgent work leaves."""

import pytest

from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.scheduling.cost_model import (
    LOAD_TIME_CONSTANT_S,
    RATIONED_SHARE,
    URGENT_AND_RATIONED_SHARE,
    WorkerLoad,
)

RULES = ASR_SCHEDULING.rules


def busy(load: WorkerLoad, priority: DecodePriority, share: float, until: float = 60.0) -> float:
    """Loads one worker with this share of its time until `until`; returns the time afterwards."""
    now = 0.0
    while now < until:
        now += 0.1
        load.add([priority], 0.1 * share, now)
    return now


def test_an_idle_model_has_room_for_a_slow_partial() -> None:
    assert WorkerLoad(RULES, 1).has_room_for_rationed(0.0, 1.0)


def test_partials_are_limited_to_their_share() -> None:
    load = WorkerLoad(RULES, 1)
    now = busy(load, DecodePriority.PARTIAL, RATIONED_SHARE * 0.8)
    assert load.has_room_for_rationed(now, 0.05)
    assert not load.has_room_for_rationed(now, RATIONED_SHARE * LOAD_TIME_CONSTANT_S)
    assert load.has_room_for_rationed(
        now + 3 * LOAD_TIME_CONSTANT_S, RATIONED_SHARE * LOAD_TIME_CONSTANT_S * 0.9
    )


@pytest.mark.parametrize("urgent", [DecodePriority.FINAL, DecodePriority.SPECULATIVE])
def test_urgent_work_leaves_partials_less_and_then_nothing(urgent: DecodePriority) -> None:
    quiet, loud = WorkerLoad(RULES, 1), WorkerLoad(RULES, 1)
    now = busy(quiet, urgent, URGENT_AND_RATIONED_SHARE / 2)
    busy(loud, urgent, URGENT_AND_RATIONED_SHARE * 1.1)
    assert quiet.has_room_for_rationed(now, URGENT_AND_RATIONED_SHARE / 4 * LOAD_TIME_CONSTANT_S)
    assert not loud.has_room_for_rationed(now, 0.0)


def test_uploads_do_not_count() -> None:
    load = WorkerLoad(RULES, 1)
    assert load.has_room_for_rationed(busy(load, DecodePriority.BATCH, 0.9), 0.5)


def test_two_workers_have_twice_the_room() -> None:
    one, two = WorkerLoad(RULES, 1), WorkerLoad(RULES, 2)
    now = busy(one, DecodePriority.FINAL, 0.7)
    busy(two, DecodePriority.FINAL, 0.7)
    assert not one.has_room_for_rationed(now, 0.1)
    assert two.has_room_for_rationed(now, 0.1)


def test_the_time_of_a_call_is_divided_by_its_items() -> None:
    load = WorkerLoad(RULES, 1)
    load.add([DecodePriority.FINAL, DecodePriority.PARTIAL], 2.0, 0.0)
    assert load.has_room_for_rationed(0.0, RATIONED_SHARE * LOAD_TIME_CONSTANT_S - 1.1)
    assert not load.has_room_for_rationed(0.0, RATIONED_SHARE * LOAD_TIME_CONSTANT_S - 0.9)
