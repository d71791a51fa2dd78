"""The system prompt: whose instructions count, and where the date and the room stand in it."""

import asyncio
from dataclasses import replace
from datetime import date

import pytest

from core.conversation.items import MessageItem, TextPart
from core.ports import UNKNOWN_LOCATION, DeviceLocation
from pipeline.conversation.instructions import NO_DEFAULT, add_location, bundled_instructions
from pipeline.session.one_shot import OneShotRequest, OneShotResponses
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import ResponseRequest, SessionSettings
from pipeline.speech.language.language_id import TextLanguageDetector
from tests.loop import run_virtual
from tests.pipeline.fakes import World, speak

KITCHEN = DeviceLocation("Kitchen", "board")


def has_room(world: World) -> list[bool]:
    """Returns, for each prompt so far, whether it names the room."""
    return [any("Kitchen" in one.text for one in asked) for asked in world.llm.asked]


@pytest.mark.parametrize("instructions", ["", "Be brief."])
def test_the_room_follows_the_instructions(instructions: str) -> None:
    told = add_location(instructions, KITCHEN)
    assert told.startswith(instructions)
    assert "Kitchen" in told
    assert told == told.strip()
    assert add_location(instructions, UNKNOWN_LOCATION) == instructions


def test_a_caller_comes_after_all_that_prompts_share() -> None:
    caller = DeviceLocation(caller="Grandma")
    assert add_location("Be brief.", caller).startswith("Be brief.\n\nThe user is a guest")
    prompt = bundled_instructions().prompt("", "de", MONDAY, caller)
    assert prompt.startswith(bundled_instructions().prompt("", "de", MONDAY, UNKNOWN_LOCATION))
    assert "Grandma" in prompt.rsplit("\n\n", 1)[1]
    known = add_location("", DeviceLocation(caller="Grandma", caller_id="spk_1"))
    assert known.startswith("The user calls by telephone, from the number of Grandma")


def test_a_one_shot_question_names_its_room_in_the_prompt() -> None:
    world = World()
    exchanges = OneShotResponses(world.services(), world.conversations, TextLanguageDetector())

    async def main() -> None:
        for place in (None, KITCHEN):
            async with exchanges.open(
                OneShotRequest("hello", language="en", place=place)
            ) as exchange:
                await exchange.text()

    asyncio.run(main())
    assert has_room(world) == [False, True]


def test_a_session_names_the_room_of_its_device_in_the_prompt() -> None:
    world = World()

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=2)
        for place in (None, KITCHEN):
            opened = sessions.open(SessionSettings(), paced_by="server", place=place)
            async with opened as session:
                session.create_response(ResponseRequest())
                await speak(session, (0, 500))

    run_virtual(main())
    assert has_room(world) == [False, True]


MONDAY = date(2026, 11, 23)
TODAY = {
    "en": "Today is Monday, 23 November 2026.",
    "de": "Heute ist Montag, der 23. November 2026.",
    "fr": "Nous sommes le lundi 23 novembre 2026.",
    "es": "Hoy es lunes, 23 de noviembre de 2026.",
}


@pytest.mark.parametrize("language", TODAY)
def test_the_default_instructions_are_in_the_language_of_the_answer(language: str) -> None:
    told = bundled_instructions().prompt("", language, MONDAY, KITCHEN)
    assert "arkdown" in told
    text, today, room = told.split("\n\n")
    assert today == TODAY[language]
    assert "Kitchen" in room
    # What changes comes last, so the beginning is the same tomorrow and in another room.
    tomorrow = bundled_instructions().prompt("", language, date(2026, 11, 24), UNKNOWN_LOCATION)
    assert tomorrow.startswith(text)
    assert tomorrow != told


def test_every_language_has_all_names_of_days_and_months() -> None:
    for texts in bundled_instructions().texts.values():
        assert len(set(texts.weekdays)) == 7
        assert len(set(texts.months)) == 12
        assert len(texts.text) < 900, "every request pays for it"


def test_other_languages_get_the_english_instructions_and_answers_in_their_own() -> None:
    told = bundled_instructions().prompt("", "pt", MONDAY, UNKNOWN_LOCATION)
    assert "Answer in the language in which the user speaks." in told
    assert "Answer in the language" not in bundled_instructions().prompt(
        "", "en", MONDAY, UNKNOWN_LOCATION
    )


def test_instructions_of_the_client_are_used_unchanged() -> None:
    assert (
        bundled_instructions().prompt("Be a pirate.", "en", MONDAY, UNKNOWN_LOCATION)
        == "Be a pirate."
    )
    assert bundled_instructions().prompt("Be a pirate.", "en", MONDAY, KITCHEN) == add_location(
        "Be a pirate.", KITCHEN
    )
    assert NO_DEFAULT.prompt("", "en", MONDAY, UNKNOWN_LOCATION) == ""


def system_prompts(world: World) -> list[str]:
    return [one.text for asked in world.llm.asked for one in asked if one.role == "system"]


def test_default_instructions_give_the_date_in_the_language_of_the_question() -> None:
    world = World()
    around = replace(world.services(), instructions=bundled_instructions())
    exchanges = OneShotResponses(around, world.conversations, TextLanguageDetector())

    async def main() -> None:
        async with exchanges.open(OneShotRequest("hallo", language="de")) as exchange:
            await exchange.text()
        sessions = Sessions(around, world.conversations, max_sessions=2)
        for settings in (SessionSettings(), SessionSettings(instructions="Be brief.")):
            async with sessions.open(settings, paced_by="server") as session:
                session.create_response(ResponseRequest())
                await speak(session, (0, 500))

    run_virtual(main())
    german, ours, own = system_prompts(world)
    assert "Heute ist Freitag, der 2. Januar 2026." in german
    assert "Today is Friday, 2 January 2026." in ours
    assert own == "Be brief."


SYSTEM = MessageItem("item_1", "system", (TextPart("You are a pirate."),))
ASKED = MessageItem("item_2", "user", (TextPart("hello"),))


@pytest.mark.parametrize(
    ("settings", "request_", "expected"),
    [
        (SessionSettings(modality="text"), ResponseRequest(), []),
        (SessionSettings(), ResponseRequest(modality="text"), []),
        (
            SessionSettings(),
            ResponseRequest(modality="text", in_conversation=False, input=(ASKED,)),
            [],
        ),
        (SessionSettings(is_uninstructed=True), ResponseRequest(), []),
        (SessionSettings(), ResponseRequest(instructions=""), []),
        (SessionSettings(instructions="Be brief."), ResponseRequest(instructions=""), []),
        (SessionSettings(), ResponseRequest(input=(SYSTEM, ASKED)), [SYSTEM.text]),
        (
            SessionSettings(instructions="Be brief.", modality="text"),
            ResponseRequest(),
            ["Be brief."],
        ),
    ],
)
def test_default_instructions_are_not_added_where_the_client_decides(
    settings: SessionSettings, request_: ResponseRequest, expected: list[str]
) -> None:
    world = World()
    around = replace(world.services(), instructions=bundled_instructions())

    async def main() -> None:
        sessions = Sessions(around, world.conversations, max_sessions=1)
        async with sessions.open(settings, paced_by="server") as session:
            session.create_response(request_)
            await speak(session, (0, 500))

    run_virtual(main())
    assert len(world.llm.asked) == 1
    assert system_prompts(world) == expected


def test_a_system_item_in_the_conversation_replaces_the_default_instructions() -> None:
    world = World()
    around = replace(world.services(), instructions=bundled_instructions())

    async def main() -> None:
        sessions = Sessions(around, world.conversations, max_sessions=1)
        async with sessions.open(SessionSettings(), paced_by="server") as session:
            session.add_item(SYSTEM)
            session.create_response(ResponseRequest())
            await speak(session, (0, 500))

    run_virtual(main())
    assert system_prompts(world) == [SYSTEM.text]
