"""Questions of programs on a board: spoken, and answered by the user's next words."""

import asyncio

import pytest

from devices.fleet.presence import AskableDevice
from tests.devices.xiaozhi.servers import Scene, Server, SineTts, against, live_of

pytestmark = pytest.mark.live

QUESTION = "Pizza, or pasta?"


def test_the_next_words_answer_a_question_and_the_assistant_is_silent() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        await board.until("listening")
        live = live_of(server, board)
        assert isinstance(live, AskableDevice)
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(live.ask(QUESTION))
            await board.text("tts", state="sentence_start", text=QUESTION)
            assert await live.ask("And to drink?") is None
            await board.text("tts", state="stop")
            board.say("two")
        assert asked.result() == "two"
        await board.text("stt", text="two")
        _, answers = await board.turn("three")
        assert answers == ["you said two three."]  # none before it; the words stay in the history
        await board.hang_up()

    against(act, Scene(tts=SineTts(400)))


def test_words_that_began_before_the_question_are_for_the_assistant() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        await board.until("listening")
        board.say("one", "two", "three", "four")
        await board.half_said()
        live = live_of(server, board)
        assert isinstance(live, AskableDevice)
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(live.ask(QUESTION))
            await board.text("tts", state="sentence_start", text="you said one two three four.")
            await board.text("tts", state="sentence_start", text=QUESTION)
            await board.text("tts", state="stop")
            board.say("two")
        assert asked.result() == "two"
        await board.hang_up()

    against(act, Scene(tts=SineTts(400)))


def test_a_question_that_is_given_up_lets_the_assistant_answer_again() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        await board.until("listening")
        live = live_of(server, board)
        assert isinstance(live, AskableDevice)
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(live.ask(QUESTION))
            await board.text("tts", state="stop")
            asked.cancel()
        assert await board.turn("two") == ("two", ["you said two."])
        await board.hang_up()

    against(act, Scene(tts=SineTts(400)))


def test_a_question_ends_with_the_connection() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        await board.until("listening")
        live = live_of(server, board)
        assert isinstance(live, AskableDevice)
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(live.ask(QUESTION))
            await board.text("tts", state="stop")
            await board.hang_up()
        assert asked.result() is None
        assert await live.ask(QUESTION) is None

    against(act, Scene(tts=SineTts(400)))
