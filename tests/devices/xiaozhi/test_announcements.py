"""Announcements on a board in auto mode, whose microphone closes with `tts start`."""

import pytest

from devices.fleet.presence import DeviceNotification
from tests.devices.xiaozhi.servers import Scene, Server, SineTts, against, live_of
from tests.devices.xiaozhi.simulated_board import Board

pytestmark = pytest.mark.live

NOTICE = "The washing is done."


async def sentences(board: Board, last: str) -> list[str]:
    """Returns its messages until then, and when its microphone closed and opened."""
    told: list[str] = []
    while not told or told[-1] != last:
        message = await board.text_of("stt", "tts")
        told.append(message.get("text") or message["state"])
    return told


def test_a_notice_does_not_interrupt_a_user_who_speaks() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        await board.until("listening")
        board.say("one", "two", "three", "four")
        await board.half_said()
        assert await live_of(server, board).notify(DeviceNotification(text=NOTICE))
        told = await sentences(board, NOTICE)
        words = "one two three four"
        assert [one for one in told if one not in ("start", "stop")] == [
            words,
            f"you said {words}.",
            NOTICE,
        ]
        assert told.index(words) < told.index("start")  # all was said before it was closed
        await board.text("tts", state="stop")
        assert board.lost == 0
        assert await board.turn("two") == ("two", ["you said two."])
        await board.hang_up()

    against(act)


def test_a_notice_waits_for_the_end_of_an_answer() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        await board.until("listening")
        board.say("one")
        await board.text("tts", state="sentence_start", text="you said one.")
        assert await live_of(server, board).notify(DeviceNotification(text=NOTICE))
        told = await sentences(board, NOTICE)
        assert told in (["stop", "start", NOTICE], [NOTICE])
        await board.text("tts", state="stop")
        assert len(board.played) * 60 >= 2 * 1000 - 60
        assert board.lost == 0
        await board.hang_up()

    against(act, Scene(tts=SineTts(1000)))
