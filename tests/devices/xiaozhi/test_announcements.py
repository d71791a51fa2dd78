"""What is said unasked on a board in auto mode, whose microphone closes with `tts start`."""

import pytest

from devices.presence import ConnectedDevice, DeviceNotification
from tests.devices.xiaozhi.servers import Scene, Server, SineTts, against
from tests.devices.xiaozhi.simulated_board import Board

pytestmark = pytest.mark.live

NOTICE = "The washing is done."


def live_of(server: Server, board: Board) -> ConnectedDevice:
    live = server.scene.presence.find(server.scene.directory.known[board.mac].id)
    assert live is not None
    return live


async def sentences(board: Board, last: str) -> list[str]:
    """What it is told until then, and when its microphone is closed and opened."""
    told: list[str] = []
    while not told or told[-1] != last:
        message = await board.text_of("stt", "tts")
        told.append(message.get("text") or message["state"])
    return told


def test_who_speaks_is_not_cut_off_by_a_notice() -> None:
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


def test_who_is_answered_hears_the_answer_to_its_end_before_a_notice() -> None:
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
