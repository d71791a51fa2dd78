"""Commands through the embedded language model to Home Assistant, and the spoken answers."""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest

from core.conversation.speakers import SpeakerMatch
from core.ports import SpeakerConfirmation, ToolContext
from devices.home_assistant.entities import EntityMirror
from devices.home_assistant.tools import HomeAssistantTools
from engines.base import Message, TextDelta, ToolCall
from engines.llm import intents
from pipeline.tools.guards import Guards, GuardSettings
from pipeline.tools.home import Home, HomeConfig
from pipeline.tools.skills import ClockTools, ListTools, Timers, TimerTools
from pipeline.tools.toolbox import Toolbox
from tests.devices.home_assistant.fake_server import FakeHome, answered, fake_home, light
from tests.devices.home_assistant.harness import ENGLISH, client, run, spoken_in, tools, until
from tests.engines.llm.intents.text_conversation import RecordingAnnouncer
from tests.pipeline.fakes import Counts, ManualClock

pytestmark = pytest.mark.live

AREAS = [
    {"area_id": "kitchen", "name": "Kitchen", "aliases": ["Küche"]},
    {"area_id": "office", "name": "Office", "aliases": []},
]
ENTITIES = [
    light("Kitchen Lights", "kitchen"),
    light("Desk Lamp", "office", aliases=["reading lamp"]),
    {"id": "cover.blind", "name": "Window Blind", "area": "kitchen"},
    {"id": "lock.front", "name": "Front Door", "area": "kitchen"},
]


@dataclass
class Talk:
    """The embedded model with Home Assistant and our other skills."""

    provider: Any
    context: ToolContext = ENGLISH
    messages: list[Message] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        home, clock = Home(HomeConfig()), ManualClock()
        timers = Timers(home, clock, RecordingAnnouncer())
        skills = (ListTools(home), TimerTools(timers), ClockTools(clock))
        self.toolbox = Toolbox((self.provider, *skills), Counts())
        self.model = intents.create(intents.Settings())

    async def say(self, text: str) -> str:
        self.messages.append(Message("user", text))
        for _ in range(3):
            specs = self.toolbox.specs(self.context)
            reply = self.model.reply(self.messages, specs, language=self.context.language)
            async with aclosing(reply) as steps:
                told = [step async for step in steps]
            calls = tuple(step for step in told if isinstance(step, ToolCall))
            said = "".join(step.text for step in told if isinstance(step, TextDelta))
            self.messages.append(Message("assistant", said, calls))
            if not calls:
                return said
            results = await self.toolbox.run(calls, self.context)
            self.messages += [
                Message("tool", result, call_id=call.call_id)
                for call, result in zip(calls, results, strict=True)
            ]
        raise AssertionError("it never ends")


def with_talk(
    main: Callable[[FakeHome, Talk], Any], context: ToolContext = ENGLISH, **how: Any
) -> None:
    async def run_it() -> None:
        settings = how.pop("settings", {})
        async with (
            fake_home(**{"entities": list(ENTITIES), "areas": AREAS, **how}) as home,
            tools(home, **settings) as (provider, _),
        ):
            await main(home, Talk(provider, context))

    run(run_it())


def texts(home: FakeHome) -> list[str]:
    return [asked["text"] for asked in home.sentences]


def test_a_command_is_forwarded_unchanged_and_the_answer_spoken() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        home.answer = lambda _: answered("Turned on the light")
        assert await talk.say("Turn on the kitchen lights") == "Turned on the light"
        assert texts(home) == ["Turn on the kitchen lights"]

    with_talk(main)


def test_a_sentence_we_do_not_understand_is_forwarded() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        home.answer = lambda _: answered("Movie night it is")
        assert await talk.say("make it movie night") == "Movie night it is"

    with_talk(main)


def test_a_misheard_name_is_forwarded_corrected() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        await talk.say("turn on the dusk lamp")
        assert texts(home) == ["turn on the desk lamp"]

    with_talk(main)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("set a timer for five minutes", "Timer set for 5 minutes."),
        ("what time is it", "It is seven forty three pm."),
        ("add milk to my shopping list", "Added milk"),
        ("what is two plus three", "That is 5."),
    ],
)
def test_our_skills_work_while_home_assistant_is_away(said: str, answer: str) -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        await home.stop()
        assert (await talk.say(said)).startswith(answer)
        assert home.sentences == []

    with_talk(main)


@pytest.mark.parametrize(
    ("language", "said", "answer"),
    [
        ("en", "turn on the kitchen lights", "Home Assistant cannot be reached."),
        ("de", "schalte die Desk Lamp ein", "Home Assistant ist nicht erreichbar."),
        ("fr", "allume Desk Lamp", "Home Assistant est injoignable."),
        ("es", "enciende Desk Lamp", "No se puede acceder a Home Assistant."),
    ],
)
def test_a_command_while_home_assistant_is_away_gets_an_explanation(
    language: str, said: str, answer: str
) -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        await home.stop()
        assert await talk.say(said) == answer

    with_talk(main, ToolContext("conv_1", language))


def test_a_slow_home_assistant_is_explained_to_the_user() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        home.released.clear()
        answer = await talk.say("turn on the kitchen lights")
        assert answer == "Home Assistant does not answer."

    with_talk(main, settings={"timeout_s": 0.05})


def test_a_refused_token_is_explained_to_the_user() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        answer = await talk.say("turn on the kitchen lights")
        assert answer == "Home Assistant does not let me in. Please check the token."
        assert home.logins == 1

    with_talk(main, token="another")


def test_each_conversation_has_its_own_in_home_assistant() -> None:
    async def run_it() -> None:
        async with (
            fake_home(entities=list(ENTITIES)) as home,
            tools(home) as (provider, clock),
        ):
            talk = Talk(provider)
            await talk.say("turn on the desk lamp")
            await talk.say("turn off the desk lamp")
            clock.seconds += 301
            await talk.say("turn on the desk lamp")
            await Talk(provider, ToolContext("conv_2", "en")).say("turn on the desk lamp")
            sent = [asked.get("conversation_id", "left out") for asked in home.sentences]
            assert sent == ["left out", "c-1", "left out", "left out"]

    run(run_it())


def test_the_answer_to_a_question_of_home_assistant_is_forwarded() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        home.answer = lambda _: answered("Which one?", continue_conversation=True)
        await talk.say("turn on the desk lamp")
        specs = talk.toolbox.specs(talk.context)
        assert await talk.model.understands(
            [Message("user", "Yes please.")], specs, language="en"
        ), "also where a language model would answer"
        home.answer = lambda _: answered("Both are on")
        assert await talk.say("yes") == "Both are on"
        assert await talk.say("yes") != "Both are on"
        assert texts(home) == ["turn on the desk lamp", "yes"]

    with_talk(main)


@pytest.mark.parametrize(
    ("area", "language", "said", "sent"),
    [
        ("Kitchen", "en", "turn on the lights", "turn on the lights in the Kitchen"),
        ("kitchen", "en", "dim the lights to 20 percent", None),
        ("Office", "en", "turn on the lights in the kitchen", "turn on the lights in the kitchen"),
        ("Office", "en", "turn on the desk lamp", "turn on the desk lamp"),
        ("Shed", "en", "turn on the lights", "turn on the lights"),
        ("Küche", "de", "schalte das Licht ein", "schalte das Licht im Küche ein"),
    ],
)
def test_the_room_is_added_if_the_command_names_none(
    area: str, language: str, said: str, sent: str | None
) -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        await talk.say(said)
        if sent is not None:
            assert texts(home) == [sent]
        else:
            assert all("kitchen" in text.lower() for text in texts(home))

    with_talk(main, spoken_in(area, language))


def test_a_service_is_called_if_the_sentence_fails() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        home.answer = lambda _: answered("Sorry", code="no_intent_match")
        answer = await talk.say("turn on the reading lamp")
        assert "lamp" in answer.lower()
        assert home.services == [
            {
                "domain": "light",
                "service": "turn_on",
                "service_data": {"entity_id": ["light.desk_lamp"]},
            }
        ]

    with_talk(main)


def test_a_refusal_is_spoken_in_home_assistants_words() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        home.answer = lambda _: answered("Sorry, no such thing", code="no_intent_match")
        assert await talk.say("do a somersault") == "Sorry, no such thing"
        home.answer = lambda _: answered("", code="failed_to_handle")
        assert await talk.say("do a somersault") == "Home Assistant could not do that."

    with_talk(main)


def test_two_commands_in_one_sentence_are_forwarded_separately() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        home.answer = lambda asked: answered(asked["text"].upper())
        answer = await talk.say("turn on the desk lamp and open the window blind")
        assert texts(home) == ["turn on the desk lamp", "open the window blind"]
        assert answer == "TURN ON THE DESK LAMP OPEN THE WINDOW BLIND"

    with_talk(main)


def test_arguments_that_are_not_a_sentence_are_refused() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        wrong: list[Mapping[str, Any]] = [{}, {"text": 7}, {"text": " "}, {"text": "x" * 1001}]
        calls = [ToolCall(f"call_{n}", "home_assistant", one) for n, one in enumerate(wrong)]
        results = await talk.toolbox.run(calls, ENGLISH)
        assert all("invalid_arguments" in one for one in results)
        assert home.sentences == []

    with_talk(main)


@pytest.mark.parametrize(
    ("said", "sentences", "services"),
    [
        ("turn on the kitchen lights", 0, 0),  # guarded
        ("turn on the desk lamp", 0, 1),  # by the service that Earshot chose itself
        ("make it movie night", 0, 0),  # nobody knows what it does
        ("is the desk lamp on", 1, 0),
    ],
)
def test_a_guarded_device_is_safe_from_guests_whatever_home_assistant_understands(
    said: str, sentences: int, services: int
) -> None:
    guard = GuardSettings(locks=("anna",), devices=("light.kitchen_lights",))

    async def confirm() -> SpeakerConfirmation:
        return SpeakerConfirmation(SpeakerMatch("spk_1", "Anna", 0.9), is_owners=True)

    anna = ToolContext("conv_1", "en", confirm_speaker=confirm)

    async def run_it() -> None:
        async with fake_home(entities=list(ENTITIES), areas=AREAS) as home, client(home) as house:
            provider = HomeAssistantTools(
                house, ManualClock(), guards=Guards({"lights": guard}, ManualClock())
            )
            answer = await Talk(provider, ENGLISH).say(said)
            assert ("only for certain people" in answer) == (sentences + services == 0)
            assert (len(home.sentences), len(home.services)) == (sentences, services)
            await Talk(provider, anna).say(said)
            assert len(home.sentences) + len(home.services) == 1 + sentences + services

    run(run_it())


def test_follow_ups_call_services_and_undo_restores_the_brightness() -> None:
    async def run_it() -> None:
        shown = Home(HomeConfig())
        async with (
            fake_home(entities=list(ENTITIES), areas=AREAS) as home,
            client(home, mirror=EntityMirror(shown)) as house,
        ):
            talk = Talk(HomeAssistantTools(house, ManualClock()))
            await until(lambda: bool(home.watched))
            lamp = {"light.kitchen_lights": {"s": "on", "a": {"brightness": 102}}}
            await home.show(a=lamp)
            await until(lambda: any(one.state == "on" for one in shown.entities()))
            done = {"type": "entity", "name": "Kitchen Lights", "id": "light.kitchen_lights"}
            turned_off = answered("Turned off")
            turned_off["response"]["data"]["success"].append(done)
            home.answer = lambda _: turned_off
            await talk.say("turn off the kitchen lights")
            assert await talk.say("undo") == "The Kitchen Lights are as before."
            await talk.say("turn them on")
            assert await talk.say("undo") == "The Kitchen Lights are as before."
            calls = [(one["service"], one["service_data"]) for one in home.services]
            target = {"entity_id": ["light.kitchen_lights"]}
            restored = ("turn_on", {"brightness_pct": 40, **target})
            assert calls == [restored, ("turn_on", target), restored]
            assert texts(home) == ["turn off the kitchen lights"]

    run(run_it())


def test_undo_of_a_color_is_refused_because_the_former_one_is_not_known() -> None:
    async def main(home: FakeHome, talk: Talk) -> None:
        home.answer = lambda _: answered("Done")
        await talk.say("make the kitchen lights red")
        assert await talk.say("undo") == "I can't undo that."
        assert home.services == []

    with_talk(main)
