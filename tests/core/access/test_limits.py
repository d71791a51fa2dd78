"""A capacity limit: it refuses when full, counts what is given back, and drains."""

import asyncio

import pytest

from core.access.limits import CapacityLimit, RequestRate
from core.errors import OverloadedError
from tests.loop import run_virtual


def test_a_full_limit_refuses_and_a_drain_waits_for_the_last_place() -> None:
    async def scene() -> None:
        places = CapacityLimit(1, "{limit} texts are being read, the limit", retry_after_s=3)
        with places.take():
            with (
                pytest.raises(OverloadedError, match="1 texts are being read") as full,
                places.take(),
            ):
                pytest.fail("there is no room")
            assert (full.value.code, full.value.retry_after_s) == ("server_full", 3)
            async with asyncio.TaskGroup() as tasks:
                draining = tasks.create_task(places.drain())
                await asyncio.sleep(10)
                assert not draining.done()
                with pytest.raises(OverloadedError) as closed, places.take():
                    pytest.fail("it is draining")
                assert closed.value.code == "draining"
                draining.cancel()
        assert places.taken == 0
        await places.drain()

    run_virtual(scene())


def test_a_caller_that_leaves_a_spare_place_is_refused_earlier() -> None:
    places = CapacityLimit(2, "all {limit} places are taken", retry_after_s=3)
    with places.take(spare=1):
        with pytest.raises(OverloadedError, match="all 1 places are taken"):
            places.check(spare=1)
        with places.take():
            assert places.taken == 2


def test_the_only_place_is_the_owners() -> None:
    places = CapacityLimit(1, "all {limit} places are taken", retry_after_s=3)
    with pytest.raises(OverloadedError, match="max_sessions of at least 2"):
        places.check(spare=1)
    with places.take():
        assert places.taken == 1


def test_an_unlimited_capacity_only_counts() -> None:
    places = CapacityLimit()
    with places.take(), places.take():
        assert places.taken == 2
    assert places.taken == 0


def test_requests_of_a_minute_may_come_at_once_and_then_one_by_one() -> None:
    rate = RequestRate(4)
    assert [rate.take(100.0) for _ in range(4)] == 4 * [0.0]
    assert rate.take(100.0) == pytest.approx(15.0)
    assert rate.take(107.0) == pytest.approx(8.0)
    assert (rate.take(115.0), rate.take(130.0)) == (0.0, 0.0)
    assert rate.take(131.0) == pytest.approx(14.0)


def test_unused_requests_of_earlier_minutes_are_not_saved_up() -> None:
    rate = RequestRate(2)
    assert [rate.take(10_000.0) for _ in range(2)] == 2 * [0.0]
    assert rate.take(10_000.0) > 0
