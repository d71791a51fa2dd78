"""Two hundred turns of ten boards on a bad Wi-Fi: nothing may hang, be lost or be left over."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.devices.xiaozhi.servers import Scene, Server, SineTts, against
from tests.devices.xiaozhi.simulated import Board

BOARDS, TURNS = 10, 20
MODES = ("auto", "realtime", "manual")
TURN_S = 15
"A turn takes some 2 s; the machine may be busy."


LOSES = 0.03
"Of a board's packets."

LATE_S = 0.03
"""Boards and server share one loop: when the machine holds it up for longer, a board reads `tts
start` together with the sound behind it, which it then loses."""


class Lateness:
    """How often the loop was held up."""

    def __init__(self) -> None:
        self.count = 0

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_at = loop.time() + 0.01
            await asyncio.sleep(0.01)
            self.count += loop.time() - due_at > LATE_S


@pytest.mark.real
def test_two_hundred_turns_with_loss_reboots_cuts_and_double_connects() -> None:
    answered: list[str] = []
    dropped: list[int] = []
    cuts = Counter[str]()
    lateness = Lateness()

    async def live(server: Server, number: int) -> None:
        lottery = random.Random(number)
        mac = f"00:00:00:00:00:{number:02x}"
        values = {"mac": mac, "mode": MODES[number % 3], "framing": 1 + number % 3}
        values |= {"stalls": lottery, "loses": LOSES}
        board = server.board(**values)
        await board.boot()
        await board.open()

        async def again() -> Board:
            """The power fails: not even TCP says goodbye."""
            await board.hang_up()
            dropped.append(board.dropped)
            other = server.board(**values)
            await other.boot()
            await other.open()
            return other

        for turn in range(TURNS):
            late_before, lost_before = lateness.count, board.lost
            word = lottery.choice(("one", "two", "three"))
            async with asyncio.timeout(TURN_S):
                said = await board.turn(word)
            assert said == (word, [f"you said {word}."]), f"board {number}, turn {turn}"
            answered.append(word)
            assert board.lost == lost_before or lateness.count > late_before
            if board.mode == "manual":
                await board.until("idle")
            if board.mode == "manual":
                await board.listen()
            match lottery.random():
                case chance if chance < 0.1:
                    board = await again()
                case chance if chance < 0.2:  # in the middle of what is said: nobody asked anything
                    await board.until("listening")
                    board.say(*["four"] * 6)
                    await board.half_said()
                    board = await again()
                    cuts["speech"] += 1
                case chance if chance < 0.3:  # in the middle of the answer
                    await board.until("listening")
                    board.say(word)
                    if board.mode == "manual":
                        await board.release()
                    async with asyncio.timeout(TURN_S):
                        await board.until("speaking")
                    board = await again()
                    cuts["answer"] += 1
                case chance if chance < 0.4:  # it comes twice: the newer one stays
                    other = server.board(**values, flash_of=board)
                    await other.open()
                    await board.closed.wait()
                    assert board.close_code == 1008
                    await board.hang_up()
                    dropped.append(board.dropped)
                    board = other
        await board.hang_up()
        dropped.append(board.dropped)

    async def act(server: Server) -> None:
        async with asyncio.TaskGroup() as watching:
            watch = watching.create_task(lateness.watch())
            async with asyncio.TaskGroup() as tasks:
                for number in range(BOARDS):
                    tasks.create_task(live(server, number))
            watch.cancel()
        await server.left()
        assert len(answered) == BOARDS * TURNS
        assert sum(dropped) > BOARDS * TURNS / 4
        assert min(cuts["speech"], cuts["answer"]) > BOARDS / 2
        counts = server.scene.metrics.counts
        assert counts["earshot_sessions"] == counts["earshot_xiaozhi_connections"] == 0
        assert len(asyncio.all_tasks()) < 10

    against(act, replace(Scene(), tts=SineTts(300)), limit_s=300)
