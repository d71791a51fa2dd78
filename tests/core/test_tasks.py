"""`Backoff`, whose waits grow with each failure, and `Alarm`, whose deadline may move."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from core.tasks import Alarm, Backoff
from tests.loop import run_virtual


def test_a_backoff_repeats_its_last_wait_until_it_is_reset() -> None:
    backoff = Backoff((0.5, 2.0, 8.0))
    assert [backoff.fail() for _ in range(5)] == [0.5, 2.0, 8.0, 8.0, 8.0]
    assert backoff.failures == 5
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.fail() == 0.5


def test_a_doubling_backoff_stops_at_its_maximum() -> None:
    backoff = Backoff.doubling(1.0, 60.0, stable_after_s=10.0)
    assert [backoff.fail() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize(("lasted_s", "wait_s"), [(10.0, 4.0), (10.1, 1.0)])
def test_a_long_run_resets_the_backoff(lasted_s: float, wait_s: float) -> None:
    backoff = Backoff.doubling(1.0, 60.0, stable_after_s=10.0)
    backoff.fail()
    backoff.fail()
    assert backoff.fail(lasted_s) == wait_s


def rings(scene: Callable[[Alarm], Awaitable[None]]) -> list[float]:
    """When the alarm rang, in virtual seconds from the start of `scene`."""
    rang_at: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        alarm, began_at = Alarm(loop.time), loop.time()

        async def listen() -> None:
            while True:
                await alarm.wait()
                rang_at.append(loop.time() - began_at)

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0)
        await scene(alarm)
        listening.cancel()

    run_virtual(main())
    return rang_at


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ([(0, 5)], [5]),
        ([(0, 5), (1, 9)], [9]),
        ([(0, 5), (1, 2)], [2]),
        ([(0, 5), (1, None)], []),
        ([(0, 5), (1, None), (2, 5)], [5]),
        ([(0, 5), (1, None), (2, 3)], [3]),
        ([(0, 5), (7, 8)], [5, 8]),
        ([(4, 1)], [4]),
    ],
    ids=["once", "later", "earlier", "taken back", "same again", "new", "twice", "past"],
)
def test_an_alarm_rings_at_its_latest_deadline(
    moves: list[tuple[float, float | None]], expected: list[float]
) -> None:
    async def scene(alarm: Alarm) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        for at, due in moves:
            await asyncio.sleep(began_at + at - loop.time())
            alarm.set(None if due is None else began_at + due)
        await asyncio.sleep(20)
        assert alarm.due_at is None

    assert rings(scene) == pytest.approx(expected)


def test_a_later_deadline_does_not_wake_the_waiting_task() -> None:
    looks: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def now() -> float:
            looks.append(loop.time())
            return loop.time()

        alarm = Alarm(now)
        alarm.set(loop.time() + 1)
        waiting = asyncio.create_task(alarm.wait())
        for _ in range(100):
            await asyncio.sleep(0.02)
            alarm.set(loop.time() + 1)
        await waiting

    run_virtual(main())
    assert len(looks) < 10
