"""Selection of the tools that a model is offered for a conversation."""

import json
from collections.abc import Sequence

import pytest

from core.ports import ToolProvider, ToolSpec
from engines.base import Message, ToolCall
from engines.llm.chat_messages import chat_tools
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest
from pipeline.tools.selection import (
    MAX_HOME_TOOLS,
    MAX_OTHER_TOOLS,
    MAX_UNSELECTED,
    bundled_topics,
    largest_selection,
    relevant_tools,
)
from pipeline.tools.skills import ClockTools, HomeTools, ListTools, TimerTools
from tests.engines.llm.intents.text_conversation import Talk
from tests.pipeline.fakes import World, speak
from tests.pipeline.scenes import run_session

HOME = {language: Talk(language).specs() for language in ("en", "de", "fr", "es")}
SWITCHES = {"HassTurnOn", "HassTurnOff"}
CLOCK = {"HassGetCurrentTime", "HassGetCurrentDate"}


def user_messages(*texts: str) -> list[Message]:
    return [Message("user", text) for text in texts]


def chosen(
    messages: Sequence[Message],
    language: str = "en",
    more: Sequence[ToolSpec] = (),
    context_tokens: int | None = None,
) -> list[str]:
    tools = [*HOME.get(language, HOME["en"]), *more]
    offered = relevant_tools(tools, messages, language, context_tokens=context_tokens)
    return [tool.name for tool in offered]


def foreign(name: str, description: str = "") -> ToolSpec:
    return ToolSpec(name, description, {"type": "object"}, fallback_name=f"server_{name}")


@pytest.mark.parametrize(
    ("language", "text", "needed"),
    [
        ("en", "dim the kitchen lights to 30 percent", {"HassLightSet", *SWITCHES}),
        ("en", "it is too dark in here", {"HassLightSet", *SWITCHES}),
        ("en", "open the blinds halfway", {"HassSetPosition", *SWITCHES}),
        ("en", "I am cold", {"HassClimateSetTemperature"}),
        ("en", "start the coffee machine", SWITCHES),
        ("en", "set a timer for ten minutes", {"HassStartTimer"}),
        ("en", "put milk on the shopping list", {"HassShoppingListAddItem"}),
        ("en", "make it louder", {"HassSetVolumeRelative"}),
        ("en", "did I leave anything on", {"HassGetState"}),
        ("de", "Mach das Küchenlicht an!", {"HassLightSet", *SWITCHES}),
        ("de", "mir ist kalt", {"HassClimateSetTemperature"}),
        ("de", "stell den Wecker", {"HassStartTimer"}),
        ("de", "Kaffeemaschine an", SWITCHES),
        ("fr", "allume la lumière de la cuisine", {"HassLightSet", *SWITCHES}),
        ("fr", "mets un minuteur de dix minutes", {"HassStartTimer"}),
        ("es", "enciende las luces de la cocina", {"HassLightSet", *SWITCHES}),
        ("es", "pon un temporizador de diez minutos", {"HassStartTimer"}),
    ],
)
def test_the_topic_of_the_text_chooses_the_tools(
    language: str, text: str, needed: set[str]
) -> None:
    names = chosen(user_messages(text), language)
    assert needed <= set(names)
    assert len(names) <= MAX_HOME_TOOLS


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "tell me an interesting story about a photographer"),
        ("en", "what is the capital of France"),
        ("de", "Wie heißt die Hauptstadt von Frankreich?"),
        ("fr", "quelle est la capitale de la France"),
        ("es", "¿cuál es la capital de Francia?"),
    ],
)
def test_a_general_question_gets_only_the_clock(language: str, text: str) -> None:
    names = chosen(user_messages(text), language)
    assert set(names) == CLOCK
    offered = [tool for tool in HOME[language] if tool.name in names]
    assert len(json.dumps(chat_tools(offered))) < 500
    assert len(json.dumps(chat_tools(HOME[language]))) > 25_000


def test_the_selection_keeps_its_order_until_the_topic_changes() -> None:
    first = chosen(user_messages("dim the kitchen lights"))
    later = chosen(user_messages("dim the kitchen lights", "and the bedroom", "thank you"))
    assert set(first) <= set(later)
    everything = [tool.name for tool in HOME["en"]]
    assert later == [name for name in everything if name in later]
    assert chosen(user_messages("dim the kitchen lights")) == first


def test_with_too_many_topics_the_oldest_are_left_out() -> None:
    names = chosen(user_messages("play music", "buy milk", "set a timer", "dim the lights"))
    assert len(names) <= MAX_HOME_TOOLS
    assert {"HassLightSet", "HassStartTimer"} <= set(names)
    assert "HassMediaNext" not in names


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Pause the music and start a timer for five minutes."),
        ("en", "Play some music and set a timer for ten minutes"),
        ("en", "Set the volume to 20 and remind me in 5 minutes"),
        ("de", "Mach die Musik leiser und stell einen Timer auf fünf Minuten"),
        ("fr", "Coupe la musique et mets un minuteur de cinq minutes"),
        ("es", "Para la música y pon un temporizador de cinco minutos"),
    ],
)
def test_a_sentence_gets_the_tools_of_all_its_topics(language: str, text: str) -> None:
    names = chosen(user_messages(text), language)
    assert {"HassStartTimer", "HassMediaPause", "HassSetVolume", *CLOCK} <= set(names)
    later = chosen(user_messages("dim the lights", "buy milk", text), language)
    assert set(later) == set(names), "for older topics there is no room"


def test_a_tool_that_was_called_stays() -> None:
    call = ToolCall("call_1", "HassMediaPause", {})
    messages = [*user_messages("be quiet please"), Message("assistant", tool_calls=(call,))]
    assert "HassMediaPause" in chosen([*messages, *user_messages("thank you")])


def test_client_tools_are_always_offered() -> None:
    mine = [ToolSpec(f"mine_{n}", "Mine.", {}, is_clients=True) for n in range(40)]
    names = chosen(user_messages("hello"), more=mine)
    assert [name for name in names if name.startswith("mine")] == [tool.name for tool in mine]


def test_a_few_tools_are_offered_unchanged() -> None:
    few = HOME["en"][:MAX_UNSELECTED]
    assert relevant_tools(few, user_messages("hello"), "en") is few


def test_a_language_without_topic_words_is_offered_the_whole_home() -> None:
    assert len(chosen(user_messages("dobrý den"), "cs")) == len(HOME["en"])


SERVERS = [foreign(f"archive{n}", f"Archives item {n}.") for n in range(40)]
SERVERS.append(foreign("getWeatherForecast", "Tells rain and sun for some days."))
SMALL = 2048
"A context of which the tools would be too large a part."
LARGE = 32_768


@pytest.mark.parametrize(
    ("language", "text", "context_tokens"),
    [
        ("en", "shall I take an umbrella", LARGE),
        ("en", "which item is the sun on", LARGE),
        ("de", "Wie wird das Wetter morgen in Berlin?", LARGE),
        ("de", "Wie wird das Wetter morgen in Berlin?", None),
        ("de", "Wie wird das Wetter morgen in Berlin?", 2 * SMALL),
    ],
)
def test_third_party_tools_that_fit_the_context_are_always_offered(
    language: str, text: str, context_tokens: int | None
) -> None:
    names = chosen(user_messages(text), language, SERVERS, context_tokens)
    assert set(names) >= {tool.name for tool in SERVERS}


def test_without_a_matching_word_third_party_tools_are_limited() -> None:
    names = chosen(user_messages("Wie wird das Wetter?"), "de", SERVERS, SMALL)
    assert len(set(names) - CLOCK) == MAX_OTHER_TOOLS


@pytest.mark.parametrize("context_tokens", [SMALL, 2 * SMALL, LARGE, None])
@pytest.mark.parametrize("text", ["what will the weather be", "shall I take an umbrella"])
def test_no_selection_has_more_tools_than_the_largest_one(
    text: str, context_tokens: int | None
) -> None:
    most = largest_selection([*HOME["en"], *SERVERS], context_tokens)
    assert len(chosen(user_messages(text), "en", SERVERS, context_tokens)) <= len(most)


def test_many_third_party_tools_are_chosen_by_their_descriptions() -> None:
    names = chosen(user_messages("what will the weather be"), more=SERVERS, context_tokens=SMALL)
    others = [name for name in names if not name.startswith("Hass")]
    assert len(others) == MAX_OTHER_TOOLS
    assert "getWeatherForecast" in others
    assert set(names) - set(others) == CLOCK


def test_a_few_third_party_tools_are_all_offered() -> None:
    servers = [foreign(f"archive{n}") for n in range(MAX_OTHER_TOOLS)]
    names = chosen(user_messages("hello"), more=servers)
    assert [name for name in names if name.startswith("archive")] == [t.name for t in servers]


def test_the_whole_home_is_offered_if_needed() -> None:
    servers = [foreign(f"archive{n}") for n in range(40)]
    tools = [*HOME["en"], *servers]
    offered = relevant_tools(
        tools, user_messages("hello"), "en", needs_home=True, context_tokens=512
    )
    names = [tool.name for tool in offered]
    assert names[: len(HOME["en"])] == [tool.name for tool in HOME["en"]]
    assert len(names) == len(HOME["en"]) + MAX_OTHER_TOOLS


def test_the_topic_table_lists_exactly_the_tools_of_the_home() -> None:
    listed = {name for topic in bundled_topics().values() for name in topic.tools}
    assert listed == {tool.name for tool in HOME["en"]}


def test_the_largest_selection_is_an_upper_limit() -> None:
    most = largest_selection(HOME["en"])
    largest = len(json.dumps(chat_tools(most)))
    everything = "dim the lights, heat the room, play music, set a timer, buy milk, start the fan"
    for text in ("dim the lights", "play music and heat the room", "set a timer", everything):
        names = chosen(user_messages(text))
        offered = [tool for tool in HOME["en"] if tool.name in names]
        assert len(offered) <= len(most)
        assert len(json.dumps(chat_tools(offered))) <= largest


def test_a_session_offers_selected_tools_or_all_if_a_call_is_required() -> None:
    talk = Talk()
    home, timers, lists = HomeTools(talk.home), TimerTools(talk.timers), ListTools(talk.home)
    providers: list[ToolProvider] = [home, timers, lists, ClockTools(talk.clock)]
    world = World(providers=providers, offers_all_tools=False)

    async def scenario(session: Session) -> None:
        session.create_response(ResponseRequest())
        await speak(session, (0, 500))
        session.create_response(ResponseRequest(tool_choice="required"))
        await speak(session, (0, 500))

    run_session(world, scenario)
    offered = [[tool.name for tool in tools] for tools in world.llm.tools_asked]
    assert set(offered[0]) == CLOCK
    assert len(offered[1]) == len(HOME["en"])
