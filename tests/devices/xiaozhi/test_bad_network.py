"""Two hundred turns of ten boards on a bad Wi-Fi: nothing may hang, be lost or be left over."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.devices.xiaozhi.servers import Scene, Server, SineTts, against

pytestmark = pytest.mark.live

BOARDS, TURNS = 10, 20
MODES = ("auto", "realtime", "manual")
TURN_S = 60
"A turn takes some 2 s."

LOSES = 0.03
"Of a board's packets."


@dataclass
class Tally:
    """The totals of all boards."""

    answered: int = 0
    dropped: int = 0
    cuts: Counter[str] = field(default_factory=Counter)


class Life:
    """The life of one board over its reboots."""

    def __init__(self, server: Server, number: int, tally: Tally) -> None:
        self._server, self._tally = server, tally
        self._lottery = random.Random(number)
        self._values: dict[str, Any] = {
            "mac": f"00:00:00:00:00:{number:02x}",
            "mode": MODES[number % 3],
            "framing": 1 + number % 3,
            "stalls": self._lottery,
            "loses": LOSES,
        }
        self._board = server.board(**self._values)

    async def live(self) -> None:
        await self._start()
        for _ in range(TURNS):
            word = self._lottery.choice(("one", "two", "three"))
            await self._turn(word)
            await self._fate(word)
        await self._gone()

    async def _start(self) -> None:
        await self._board.boot()
        await self._board.open()

    async def _gone(self) -> None:
        """Cuts the power: not even TCP ends the connection."""
        await self._board.hang_up()
        self._tally.dropped += self._board.dropped

    async def _again(self) -> None:
        await self._gone()
        self._board = self._server.board(**self._values)
        await self._start()

    async def _turn(self, word: str) -> None:
        board = self._board
        lost_before = board.lost
        async with asyncio.timeout(TURN_S):
            said = await board.turn(word)
        assert said == (word, [f"you said {word}."]), board.mac
        self._tally.answered += 1
        assert board.lost == lost_before
        if board.mode == "manual":
            await board.until("idle")
            await board.listen()

    async def _fate(self, word: str) -> None:
        match self._lottery.random():
            case chance if chance < 0.1:
                await self._again()
            case chance if chance < 0.2:
                await self._cut_in_speech()
            case chance if chance < 0.3:
                await self._cut_in_the_answer(word)
            case chance if chance < 0.4:
                await self._come_twice()

    async def _cut_in_speech(self) -> None:
        """Cuts the connection during speech, before a question is complete."""
        await self._board.until("listening")
        self._board.say(*["four"] * 6)
        await self._board.half_said()
        await self._again()
        self._tally.cuts["speech"] += 1

    async def _cut_in_the_answer(self, word: str) -> None:
        await self._board.until("listening")
        self._board.say(word)
        if self._board.mode == "manual":
            await self._board.release()
        async with asyncio.timeout(TURN_S):
            await self._board.until("speaking")
        await self._again()
        self._tally.cuts["answer"] += 1

    async def _come_twice(self) -> None:
        """Opens two connections, of which the newer one stays."""
        other = self._server.board(**self._values, flash_of=self._board)
        await other.open()
        await self._board.closed.wait()
        assert self._board.close_code == 1008
        await self._gone()
        self._board = other


@pytest.mark.real
def test_two_hundred_turns_with_loss_reboots_cuts_and_double_connects() -> None:
    tally = Tally()

    async def act(server: Server) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(BOARDS):
                tasks.create_task(Life(server, number, tally).live())
        await server.left()
        assert tally.answered == BOARDS * TURNS
        assert tally.dropped > BOARDS * TURNS / 4
        assert min(tally.cuts["speech"], tally.cuts["answer"]) > BOARDS / 2
        counts = server.scene.metrics.counts
        assert counts["earshot_sessions"] == counts["earshot_xiaozhi_connections"] == 0
        assert len(asyncio.all_tasks()) < 10

    against(act, replace(Scene(), tts=SineTts(300)), limit_s=300)
