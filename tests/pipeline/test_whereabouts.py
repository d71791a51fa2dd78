"""The room in which somebody speaks is in the prompt of his answers, spoken and written ones."""

import asyncio

import pytest

from core.ports import NOWHERE, Place
from pipeline.exchange import Exchanges, Question
from pipeline.sessions import Sessions
from pipeline.settings import ResponseRequest, SessionSettings
from pipeline.text_language import TextLanguage
from pipeline.whereabouts import with_room
from tests.loop import run_virtual
from tests.pipeline.fakes import World, speak

KITCHEN = Place("Kitchen", "board")


def has_room(world: World) -> list[bool]:
    """Of each prompt so far."""
    return [any("Kitchen" in one.text for one in asked) for asked in world.llm.asked]


@pytest.mark.parametrize("instructions", ["", "Be brief."])
def test_the_room_comes_after_what_is_the_same_everywhere(instructions: str) -> None:
    told = with_room(instructions, KITCHEN)
    assert told.startswith(instructions)
    assert "Kitchen" in told
    assert told == told.strip()
    assert with_room(instructions, NOWHERE) == instructions


def test_a_written_question_brings_its_room() -> None:
    world = World()
    exchanges = Exchanges(world.surroundings(), world.conversations, TextLanguage())

    async def main() -> None:
        for place in (None, KITCHEN):
            async with exchanges.open(Question("hello", language="en", place=place)) as exchange:
                await exchange.text()

    asyncio.run(main())
    assert has_room(world) == [False, True]


def test_a_session_has_the_room_of_its_device() -> None:
    world = World()

    async def main() -> None:
        sessions = Sessions(world.surroundings(), world.conversations, max_sessions=2)
        for place in (None, KITCHEN):
            opened = sessions.open(SessionSettings(), paced_by="server", place=place)
            async with opened as session:
                session.create_response(ResponseRequest())
                await speak(session, (0, 500))

    run_virtual(main())
    assert has_room(world) == [False, True]
