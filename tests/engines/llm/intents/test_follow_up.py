"""Sentences that refer to an earlier command, several targets, everything, and undo."""

import asyncio
from typing import Any

import pytest

from engines.llm import intents
from tests.engines.llm.intents.text_conversation import Talk

pytestmark = pytest.mark.live

LIGHTS_ON = {
    "en": "turn on the kitchen lights",
    "de": "schalte das Licht in der Küche ein",
    "fr": "allume les lumières de la cuisine",
    "es": "enciende las luces de la cocina",
    "it": "accendi la luce della cucina",
    "nl": "doe het licht in de keuken aan",
    "pt": "liga a luz da cozinha",
    "zh": "打开厨房的灯",
}

FOLLOW_UPS: list[tuple[str, str, str, dict[str, str]]] = [
    ("en", "turn them off", "light.kitchen", {"state": "off"}),
    ("en", "Turn it back off.", "light.kitchen", {"state": "off"}),
    ("en", "and the bedroom?", "light.bedroom", {"state": "on"}),
    ("en", "what about the office", "light.office", {"state": "on"}),
    ("en", "the attic too", "light.attic", {"state": "on"}),
    ("en", "and the bathroom fan", "fan.bathroom", {"state": "on"}),
    ("en", "make them blue", "light.kitchen", {"color": "blue"}),
    ("en", "dim them", "light.kitchen", {"brightness": "75"}),
    ("en", "dimmer", "light.kitchen", {"brightness": "75"}),
    ("en", "set it to 40 percent", "light.kitchen", {"brightness": "40"}),
    ("de", "mach es aus", "light.kitchen", {"state": "off"}),
    ("de", "und im Schlafzimmer?", "light.bedroom", {"state": "on"}),
    ("de", "dunkler", "light.kitchen", {"brightness": "75"}),
    ("fr", "éteins-les", "light.kitchen", {"state": "off"}),
    ("fr", "et dans la chambre ?", "light.bedroom", {"state": "on"}),
    ("fr", "tamise-les", "light.kitchen", {"brightness": "75"}),
    ("es", "apágalas", "light.kitchen", {"state": "off"}),
    ("es", "¿y en el dormitorio?", "light.bedroom", {"state": "on"}),
    ("es", "menos luz", "light.kitchen", {"brightness": "75"}),
    ("it", "spegni", "light.kitchen", {"state": "off"}),
    ("it", "spegnila", "light.kitchen", {"state": "off"}),
    ("it", "e in camera da letto?", "light.bedroom", {"state": "on"}),
    ("it", "meno luce", "light.kitchen", {"brightness": "75"}),
    ("nl", "zet het uit", "light.kitchen", {"state": "off"}),
    ("nl", "en in de slaapkamer?", "light.bedroom", {"state": "on"}),
    ("nl", "donkerder", "light.kitchen", {"brightness": "75"}),
    ("pt", "desliga-a", "light.kitchen", {"state": "off"}),
    ("pt", "e no quarto?", "light.bedroom", {"state": "on"}),
    ("pt", "menos luz", "light.kitchen", {"brightness": "75"}),
    ("zh", "把它关掉", "light.kitchen", {"state": "off"}),
    ("zh", "卧室呢？", "light.bedroom", {"state": "on"}),
    ("zh", "暗一点", "light.kitchen", {"brightness": "75"}),
    ("zh", "调到40%", "light.kitchen", {"brightness": "40"}),
]

UNDO = {"en": "undo that", "de": "mach das rückgängig", "fr": "annule ça", "es": "deshaz eso"}
UNDO |= {"it": "annulla", "nl": "maak dat ongedaan", "pt": "desfaz isso", "zh": "撤销"}

JOINED: list[tuple[str, str, list[dict[str, Any]]]] = [
    (
        "en",
        "set the kitchen and bedroom lights to fifty percent",
        [
            {"area": "kitchen", "brightness": 50, "domain": "light"},
            {"area": "bedroom", "brightness": 50, "domain": "light"},
        ],
    ),
    (
        "en",
        "close the blinds in the kitchen and the bedroom",
        [
            {"area": "kitchen", "device_class": "blind", "domain": "cover"},
            {"area": "bedroom", "device_class": "blind", "domain": "cover"},
        ],
    ),
    (
        "en",
        "turn on the kitchen lights and the bathroom fan",
        [{"area": "kitchen", "domain": "light"}, {"area": "bathroom", "domain": "fan"}],
    ),
    (
        "de",
        "mach das Licht in der Küche und im Bad an",
        [{"area": "küche", "domain": "light"}, {"area": "bad", "domain": "light"}],
    ),
    (
        "fr",
        "éteins les lumières de la cuisine et du salon",
        [
            {"name": "lumières de la cuisine", "domain": "light"},
            {"area": "salon", "domain": "light"},
        ],
    ),
    (
        "es",
        "apaga las luces de la cocina y del salón",
        [{"name": "luces de la cocina", "domain": "light"}, {"area": "salón", "domain": "light"}],
    ),
]

TARGET_LISTS: list[tuple[str, str, str, list[str]]] = [
    (
        "en",
        "turn on the kitchen lights, the hallway lights and the bathroom fan",
        "HassTurnOn",
        ["kitchen", "hallway", "bathroom"],
    ),
    (
        "en",
        "turn on the kitchen lights, the hallway lights, and the bathroom fan",
        "HassTurnOn",
        ["kitchen", "hallway", "bathroom"],
    ),
    (
        "en",
        "turn on the kitchen, bedroom and office lights",
        "HassTurnOn",
        ["kitchen", "bedroom", "office"],
    ),
    (
        "en",
        "turn the kitchen lights, the bedroom lights and the bathroom fan off",
        "HassTurnOff",
        ["kitchen", "bedroom", "bathroom"],
    ),
    (
        "en",
        "set the kitchen, bedroom, attic and office lights to fifty percent",
        "HassLightSet",
        ["kitchen", "bedroom", "attic", "office"],
    ),
    (
        "de",
        "schalte das Licht in der Küche, im Bad und im Schlafzimmer ein",
        "HassTurnOn",
        ["küche", "bad", "schlafzimmer"],
    ),
    ("de", "schalte das Licht in Küche, Bad und Büro aus", "HassTurnOff", ["küche", "bad", "büro"]),
    (
        "fr",
        "allume les lumières de la cuisine, du salon et de la chambre",
        "HassTurnOn",
        ["lumières de la cuisine", "salon", "chambre"],
    ),
    (
        "es",
        "enciende las luces de la cocina, del salón y del dormitorio",
        "HassTurnOn",
        ["luces de la cocina", "salón", "dormitorio"],
    ),
]

NEGATIVE = [
    ("en", "don't turn on the kitchen lights"),
    ("en", "please do not turn the kitchen and bedroom lights on"),
    ("en", "never unlock the front door"),
    ("de", "schalte das Küchenlicht nicht ein"),
    ("de", "mach kein Licht in der Küche an"),
    ("fr", "n'allume pas les lumières de la cuisine"),
    ("fr", "ne ferme pas les volets"),
    ("es", "no enciende las luces de la cocina"),
]

EVERYTHING = [
    ("en", "turn everything off"),
    ("de", "schalte alles aus"),
    ("fr", "éteins tout"),
    ("es", "apaga todo"),
    ("it", "spegni tutto"),
    ("nl", "alles uit"),
    ("pt", "desliga tudo"),
    ("zh", "关闭所有设备"),
]


def states(talk: Talk) -> dict[str, Any]:
    return {one.config.id: (one.state, one.attributes) for one in talk.home.entities()}


def replies(language: str, *texts: str) -> list[str]:
    async def main() -> list[str]:
        talk = Talk(language)
        return [(await talk.go_on(text)).reply for text in texts]

    return asyncio.run(main())


@pytest.mark.parametrize(("language", "text", "device", "expected"), FOLLOW_UPS)
def test_a_sentence_may_refer_to_the_last_command(
    language: str, text: str, device: str, expected: dict[str, str]
) -> None:
    async def main() -> None:
        talk = Talk(language)
        await talk.go_on(LIGHTS_ON[language])
        said = await talk.go_on(text)
        assert len(said.calls) == 1
        entity = talk.home.entity(device)
        shown = {"state": entity.state, **entity.attributes}
        assert {key: str(shown[key]) for key in expected} == expected

    asyncio.run(main())


GARAGE = [
    ("it", "apri il garage", "il garage è aperto?", "Sì: porta del garage."),
    ("nl", "open de garage", "is de garage dicht?", "Nee."),
    ("pt", "abre a garagem", "a garagem está aberta?", "Sim: portão da garagem."),
    ("zh", "打开车库", "车库门开着吗", "是的：车库门。"),
]


@pytest.mark.parametrize(("language", "command", "question", "answer"), GARAGE)
def test_the_garage_door_is_opened_and_its_state_is_queried(
    language: str, command: str, question: str, answer: str
) -> None:
    async def main() -> None:
        talk = Talk(language)
        await talk.go_on(command)
        assert talk.home.entity("cover.garage_door").state == "open"
        assert (await talk.go_on(question)).reply == answer

    asyncio.run(main())


REFERENCES_TO_NOTHING = [
    ("it", "spegnila", "Non so di quale dispositivo si tratta. Dimmi il nome o la stanza."),
    ("nl", "zet het uit", "Ik weet niet welk apparaat je bedoelt. Zeg de naam of de kamer."),
    ("pt", "desliga-a", "Não sei de que aparelho se trata. Diga o nome ou a divisão."),
    ("zh", "把它关掉", "我不知道是哪个设备，请说出名字或房间。"),
]


@pytest.mark.parametrize(("language", "text", "answer"), REFERENCES_TO_NOTHING)
def test_a_reference_without_an_earlier_command_is_answered(
    language: str, text: str, answer: str
) -> None:
    assert replies(language, text) == [answer]


@pytest.mark.parametrize("language", UNDO)
def test_undo_restores_state_and_brightness_and_goes_further_back(language: str) -> None:
    async def main() -> None:
        talk = Talk(language)
        talk.home.update("light.kitchen", "on", brightness=35, color="red")
        start = states(talk)
        await talk.go_on(LIGHTS_ON[language])
        await talk.go_on(next(text for one, text in EVERYTHING if one == language))
        assert talk.home.entity("light.kitchen").state == "off"
        await talk.go_on(UNDO[language])
        assert states(talk) == start
        said = await talk.go_on(UNDO[language])
        assert [name for name, _ in said.calls] == ["HassUndo"]
        assert states(talk) == start
        assert (await talk.go_on(UNDO[language])).calls == ()

    asyncio.run(main())


def test_undo_takes_back_all_commands_of_a_sentence() -> None:
    async def main() -> None:
        talk = Talk()
        start = states(talk)
        await talk.go_on("turn on the kitchen lights and open the bedroom blinds")
        assert states(talk) != start
        await talk.go_on("what time is it")
        await talk.go_on("undo")
        assert states(talk) == start

    asyncio.run(main())


def test_undo_reports_that_it_is_impossible() -> None:
    assert replies("en", "undo") == ["There is nothing to undo."]
    said = replies("en", "turn on the kitchen lights", "set a timer for ten minutes", "undo")
    assert said[-1] == "I can't undo that."


@pytest.mark.parametrize(("language", "text", "calls"), JOINED)
def test_one_verb_may_have_two_targets(
    language: str, text: str, calls: list[dict[str, Any]]
) -> None:
    said = asyncio.run(Talk(language).say(text))
    assert [dict(arguments) for _, arguments in said.calls] == calls


@pytest.mark.parametrize(("language", "text", "intent", "targets"), TARGET_LISTS)
def test_one_verb_may_have_more_targets(
    language: str, text: str, intent: str, targets: list[str]
) -> None:
    said = asyncio.run(Talk(language).say(text))
    found = [(name, slots.get("area", slots.get("name"))) for name, slots in said.calls]
    assert found == [(intent, target) for target in targets]


@pytest.mark.parametrize(
    "text",
    [
        "turn on the kitchen, bedroom, office, attic and hallway lights",
        "turn on the kitchen, blue moon and office lights",
    ],
)
def test_a_list_with_too_many_or_unknown_targets_does_nothing(text: str) -> None:
    assert asyncio.run(Talk().say(text)).calls == ()


@pytest.mark.parametrize(("language", "text"), NEGATIVE)
def test_a_negative_command_does_nothing(language: str, text: str) -> None:
    assert asyncio.run(Talk(language).say(text)).calls == ()


@pytest.mark.parametrize(("language", "text"), EVERYTHING)
def test_everything_leaves_doors_and_heating_alone(language: str, text: str) -> None:
    async def main() -> None:
        talk = Talk(language)
        talk.home.update("light.kitchen", "on")
        kept = {
            one.config.id: one
            for one in talk.home.entities()
            if one.config.kind in {"cover", "lock", "climate"}
        }
        assert (await talk.go_on(text)).calls == (("HassTurnOff", {"everywhere": True}),)
        assert talk.home.entity("light.kitchen").state == "off"
        assert {key: talk.home.entity(key) for key in kept} == kept

    asyncio.run(main())


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("lock the front door", "turn it off"),
        ("turn on the kitchen lights", "unlock it"),
        ("what time is it", "turn them off"),
        ("turn on the kitchen lights", "and the front door"),
        ("turn on the kitchen lights", "the bedroom"),
    ],
)
def test_an_unclear_reference_does_nothing(first: str, then: str) -> None:
    async def main() -> None:
        talk = Talk()
        await talk.go_on(first)
        assert (await talk.go_on(then)).calls == ()

    asyncio.run(main())


def test_a_doubtful_part_stops_the_whole_sentence() -> None:
    said = asyncio.run(Talk().say("turn off the living room lamp and the front door"))
    assert said.calls == ()
    assert said.reply.startswith("I don't know which device you mean.")


def test_a_room_answers_the_question_for_the_device() -> None:
    said = replies("en", "turn on the radio", "the kitchen")
    assert said[-1] == "Turned on the kitchen radio."


def test_brighter_without_a_light_before_means_the_lights_that_are_on() -> None:
    async def main() -> None:
        talk = Talk()
        assert (await talk.go_on("brighter")).reply == "No light is on."
        talk.home.update("light.kitchen", "on", brightness=40)
        await talk.go_on("brighter")
        assert talk.home.entity("light.kitchen").attributes["brightness"] == 65
        assert talk.home.entity("light.bedroom").state == "off"
        for _ in range(4):
            await talk.go_on("dim the lights")
        assert talk.home.entity("light.kitchen").attributes["brightness"] == 5

    asyncio.run(main())


@pytest.mark.parametrize(
    ("language", "text", "model"),
    [
        ("en", "tell me a joke", "language model"),
        ("de", "erzähl mir einen Witz", "Sprachmodell"),
        ("fr", "raconte une blague", "modèle de langage"),
        ("es", "cuéntame un chiste", "modelo de lenguaje"),
    ],
)
def test_the_help_text_is_spoken_once(language: str, text: str, model: str) -> None:
    first, between, second = replies(language, text, LIGHTS_ON[language], text)
    assert model in first
    assert model not in between
    assert first.startswith(second)
    assert len(second) < 40


def test_a_fragment_alone_is_no_command() -> None:
    specs = Talk().specs()
    assert intents.understand("the kitchen", "en", specs) is None
    found = intents.understand("turn them off", "en", specs)
    assert found is not None
    assert found.intent == "NoReference"


def test_the_help_text_is_spoken_once_in_chinese() -> None:
    first, second = replies("zh", "讲讲李白", "讲讲杜甫")
    assert first.startswith(second)
    assert len(second) < len(first)
