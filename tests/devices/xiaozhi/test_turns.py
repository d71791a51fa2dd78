"""A board that knows nothing but its protocol has conversations."""

from tests.devices.xiaozhi.servers import Server, against
from tests.devices.xiaozhi.simulated import decoded


def test_a_turn_in_every_framing() -> None:
    async def act(server: Server) -> None:
        for framing in (1, 2, 3):
            board = await server.ready(framing=framing)
            assert await board.turn("one", "two") == ("one two", ["you said one two."])
            await board.until("listening")
            assert board.lost == 0
            assert len(decoded(board.played)) == 48 * 60 * len(board.played)
            await board.hang_up()
            await server.left()

    against(act)
