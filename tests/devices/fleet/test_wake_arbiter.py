"""Which devices are awaited, and when each is told. In virtual time, with devices of no kind."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack

import numpy as np
import pytest

from devices.fleet.arbitration import WINDOW_S, WakeLevel
from devices.fleet.wake_arbiter import MAX_MISSED, WakeArbiter, plain_wake_word
from tests.loop import run_virtual
from tests.pipeline.fakes import LoopClock

WORD = "Okay Nabu"
LOUD, QUIET = WakeLevel(-10), WakeLevel(-40)


class Contender:
    """A device that is idle."""

    def __init__(
        self, name: str, area: str = "", word: str = WORD, *, connects_when_woken: bool = False
    ) -> None:
        self.contender_id, self.contender_area, self.word = name, area, word
        self.connects_when_woken = connects_when_woken

    def listens_for(self, wake_word: str) -> bool:
        return plain_wake_word(self.word) == wake_word


def against(
    act: Callable[[WakeArbiter], Awaitable[None]], groups: Iterable[tuple[str, ...]] = ()
) -> None:
    async def main() -> None:
        arbiter = WakeArbiter(LoopClock(), groups)
        running = asyncio.create_task(arbiter.run())
        await act(arbiter)
        running.cancel()
        assert not arbiter._latest

    run_virtual(main())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("hiesp", "Hi,ESP"),
        ("ok_nabu", "Okay Nabu"),
        ("okay_nabu", "OK  Nabu!"),
        ("你好小智", "你好，小智"),
        ("ALEXA", "alexa"),
    ],
)
def test_names_and_words_of_a_wake_word_are_the_same(one: str, other: str) -> None:
    assert plain_wake_word(one) == plain_wake_word(other) != ""


def test_different_wake_words_stay_different() -> None:
    assert plain_wake_word("hey jarvis") != plain_wake_word("hey mycroft")


def test_a_device_that_stays_silent_is_awaited_for_200_ms() -> None:
    async def act(arbiter: WakeArbiter) -> None:
        one, other = Contender("one"), Contender("other")
        loop, told = asyncio.get_running_loop(), list[bool]()
        with arbiter.connected(one), arbiter.connected(other):
            began = loop.time()
            report = arbiter.report(one, WORD, QUIET, on_decided=told.append)
            assert told == []
            assert await report.is_won()
            assert loop.time() - began == pytest.approx(WINDOW_S)
            assert not await arbiter.report(other, "ok_nabu", LOUD).is_won()
            assert told == [True]

    against(act)


def test_devices_of_other_rooms_and_words_are_not_awaited() -> None:
    async def act(arbiter: WakeArbiter) -> None:
        kitchen, attic = Contender("one", "Kitchen"), Contender("two", "attic")
        jarvis = Contender("three", "kitchen ", "Hey Jarvis")
        with arbiter.connected(kitchen), arbiter.connected(attic), arbiter.connected(jarvis):
            for one in (kitchen, attic, jarvis):
                assert arbiter.report(one, one.word, QUIET).decided.done()
                assert await arbiter.report(one, one.word, QUIET).is_won()

    against(act)


def test_rooms_of_a_group_compete() -> None:
    async def act(arbiter: WakeArbiter) -> None:
        kitchen, hall = Contender("one", "Kitchen"), Contender("two", "hall")
        with arbiter.connected(kitchen), arbiter.connected(hall):
            first = arbiter.report(kitchen, WORD, QUIET)
            assert await arbiter.report(hall, WORD, LOUD).is_won()
            assert not await first.is_won()

    against(act, [("Kitchen", "Hall")])


def test_the_level_is_measured_in_the_first_sound() -> None:
    async def act(arbiter: WakeArbiter) -> None:
        near, far = Contender("near"), Contender("far")
        with arbiter.connected(near), arbiter.connected(far):
            reports = [arbiter.report(one, WORD, is_measured=True) for one in (far, near)]
            for _ in range(6):
                assert not reports[0].decided.done()
                arbiter.hear(far, np.full(320, 30, np.int16))
                arbiter.hear(near, np.full(320, 300, np.int16))
            assert [await one.is_won() for one in reports] == [False, True]
            arbiter.hear(far, np.full(320, 9000, np.int16))  # too late, and harmless

    against(act)


def test_what_is_measured_when_the_time_is_over_counts() -> None:
    async def act(arbiter: WakeArbiter) -> None:
        near, far = Contender("near"), Contender("far")
        with arbiter.connected(near), arbiter.connected(far):
            reports = [arbiter.report(one, WORD, is_measured=True) for one in (far, near)]
            arbiter.hear(far, np.full(320, 30, np.int16))
            arbiter.hear(near, np.full(320, 300, np.int16))
            assert [await one.is_won() for one in reports] == [False, True]

    against(act)


def test_a_board_that_connects_when_it_is_woken_is_awaited_while_it_comes_in_time() -> None:
    async def act(arbiter: WakeArbiter) -> None:
        loop, box = asyncio.get_running_loop(), Contender("box")
        board = Contender("board", connects_when_woken=True)
        with arbiter.connected(box):
            with arbiter.connected(board):
                assert await arbiter.report(board, WORD, LOUD).is_won()
            waits_s: list[float] = []
            for _ in range(MAX_MISSED + 1):  # it is switched off now
                await asyncio.sleep(10)
                began = loop.time()
                assert await arbiter.report(box, WORD, LOUD).is_won()
                waits_s.append(round(loop.time() - began, 3))
            assert waits_s == [*[WINDOW_S] * MAX_MISSED, 0.0]
            with arbiter.connected(board):  # it is back, just in time
                assert not await arbiter.report(board, WORD, LOUD).is_won()
            await asyncio.sleep(10)
            waiting = arbiter.report(box, WORD, QUIET)
            with arbiter.connected(board):
                assert await arbiter.report(board, WORD, LOUD).is_won()
                assert not await waiting.is_won()

    against(act)


def test_a_board_that_always_comes_too_late_is_not_awaited() -> None:
    async def act(arbiter: WakeArbiter) -> None:
        box, board = Contender("box"), Contender("board", connects_when_woken=True)
        with arbiter.connected(box):
            assert await arbiter.report(box, WORD, LOUD).is_won()
            await asyncio.sleep(0.3)
            with arbiter.connected(board):
                assert not await arbiter.report(board, WORD, LOUD).is_won()
            await asyncio.sleep(10)
            assert arbiter.report(box, WORD, LOUD).decided.done()

    against(act)


def test_a_device_that_moves_or_leaves_decides_for_the_others() -> None:
    async def act(arbiter: WakeArbiter) -> None:
        one, other = Contender("one"), Contender("other")
        with arbiter.connected(one), ExitStack() as stack:
            stack.enter_context(arbiter.connected(other))
            report = arbiter.report(one, WORD, QUIET)
            stack.close()
            assert report.decided.done()
            assert await report.is_won()
            await asyncio.sleep(10)
            stack.enter_context(arbiter.connected(other))
            report = arbiter.report(other, WORD, LOUD)
            arbiter.withdraw(other)
            other.contender_area = "Attic"
            assert not await report.is_won()
            assert await arbiter.report(one, WORD, QUIET).is_won()

    against(act)


def test_the_newer_connection_of_a_device_counts() -> None:
    async def act(arbiter: WakeArbiter) -> None:
        former, newer = Contender("one"), Contender("one")
        with ExitStack() as stack:
            stack.enter_context(arbiter.connected(former))
            with arbiter.connected(newer):
                report = arbiter.report(newer, WORD, LOUD)
                stack.close()
                assert await report.is_won()
                assert arbiter._contenders == {"one": newer}

    against(act)
