"""Devices of several kinds in one room hear a wake word: one answers, and the others are told so in
their own protocol. The kinds that are not here take part in `esphome/proof_arbitration.py`."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.devices.wake_room import LOUD, QUIET, ROOM, WORD, WakeRoom, new_arbiter, wake_room
from tests.devices.willow.was.servers import mac_of
from tests.loop import LoopbackClockLoop, run_virtual

pytestmark = pytest.mark.live


def in_room(act: Callable[[WakeRoom], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), wake_room(new_arbiter()) as room:
            await act(room)

    run_virtual(main(), LoopbackClockLoop)


def test_the_device_that_hears_the_wake_word_loudest_answers() -> None:
    async def act(room: WakeRoom) -> None:
        for loudest in (0, 1, 0, 1, 1):
            levels = (QUIET, LOUD) if loudest else (LOUD, QUIET)
            won = await asyncio.gather(room.wake_box(levels[0]), room.wake_board(levels[1]))
            room.log.append("box" if won[0] else "board")
            assert sum(won) == 1
            await asyncio.sleep(2)
        assert room.log == ["box", "board", "box", "board", "board"]

    in_room(act)


def test_devices_in_two_rooms_both_answer() -> None:
    async def act(room: WakeRoom) -> None:
        room.willow.known.change(mac_of(room.box), area="Attic")
        devices = room.willow.door.connected_devices
        await room.willow.until(lambda: devices.all()[0].contender_area == "Attic")
        assert all(await asyncio.gather(room.wake_box(LOUD), room.wake_board(QUIET)))

    in_room(act)


def test_a_board_in_its_conversation_keeps_it_and_silences_the_others() -> None:
    async def act(room: WakeRoom) -> None:
        board = room.board
        await board.open(listens=False)
        await board.wake(WORD)
        await board.listen()
        await asyncio.sleep(3)
        await board.tell({"type": "abort", "reason": "wake_word_detected"})
        await board.text("tts", state="stop")
        assert await room.wake_box(LOUD) is False
        await board.listen()
        assert (await board.turn("one", "two"))[0] == "one two"
        await board.hang_up()

    in_room(act)


def test_a_board_that_was_told_to_stop_can_be_woken_again() -> None:
    async def act(room: WakeRoom) -> None:
        assert await room.wake_box(LOUD) is True
        assert await room.wake_board(LOUD) is False
        await asyncio.sleep(2)
        assert await room.wake_board(LOUD) is True
        assert room.xiaozhi.scene.directory.known[room.board.mac].area == ROOM

    in_room(act)
