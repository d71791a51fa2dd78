"""The same home in German, French and Spanish, and in languages with Home Assistant's words
only."""

import asyncio
import gc
import time as wall
from datetime import time
from typing import Any

import pytest

from engines.base import Message, TextDelta
from engines.llm import intents
from engines.llm.intents.grammar import IntentMatch
from engines.llm.intents.language import supported_language
from engines.llm.intents.replies import replies
from engines.llm.intents.spoken_numbers import clock_time
from tests.engines.llm.intents.text_conversation import Talk

pytestmark = pytest.mark.live

COMMANDS: list[tuple[str, str, str, dict[str, Any], str]] = [
    (
        "de",
        "Schalte das Küchenlicht ein",
        "HassTurnOn",
        {"name": "küchenlicht", "domain": "light"},
        "Küchenlicht eingeschaltet.",
    ),
    (
        "de",
        "schalte das licht in der küche aus",
        "HassTurnOff",
        {"area": "küche", "domain": "light"},
        "Küchenlicht ausgeschaltet.",
    ),
    (
        "de",
        "stelle das küchenlicht auf fünfundzwanzig prozent",
        "HassLightSet",
        {"name": "küchenlicht", "brightness": 25, "domain": "light"},
        "Küchenlicht auf 25 Prozent gestellt.",
    ),
    (
        "de",
        "öffne das garagentor",
        "HassTurnOn",
        {"name": "garagentor", "domain": "cover"},
        "Garagentor: wird geöffnet.",
    ),
    (
        "de",
        "stelle die heizung im büro auf zwanzig grad",
        "HassClimateSetTemperature",
        {"area": "büro", "temperature": 20},
        "Büroheizung auf 20 Grad gestellt.",
    ),
    (
        "de",
        "wie warm ist es im schlafzimmer",
        "HassClimateGetTemperature",
        {"area": "schlafzimmer"},
        "Schlafzimmer: 18,5 Grad.",
    ),
    (
        "de",
        "stelle einen timer auf eine minute",
        "HassStartTimer",
        {"minutes": 1},
        "Timer auf 1 Minute gestellt.",
    ),
    ("de", "stoppe alle timer", "HassCancelAllTimers", {}, "Es läuft kein Timer."),
    ("de", "wie lange läuft der timer noch", "HassTimerStatus", {}, "Es läuft kein Timer."),
    ("de", "wie spät ist es", "HassGetCurrentTime", {}, "Es ist 19 Uhr 43."),
    (
        "de",
        "welcher tag ist heute",
        "HassGetCurrentDate",
        {},
        "Heute ist Samstag, der 21. November.",
    ),
    (
        "de",
        "setze milch auf meine liste",
        "HassShoppingListAddItem",
        {"item": "milch", "whose": "mine"},
        "Milch steht auf der Einkaufsliste.",
    ),
    (
        "de",
        "setze milch auf die einkaufsliste",
        "HassShoppingListAddItem",
        {"item": "milch"},
        "Milch steht auf der Einkaufsliste.",
    ),
    (
        "de",
        "öffne die jalousien im dachboden",
        "HassTurnOn",
        {"device_class": "blind", "area": "dachboden", "domain": "cover"},
        "Ich kenne keine Jalousie im Bereich Dachboden.",
    ),
    (
        "fr",
        "allume les lumières de la cuisine",
        "HassTurnOn",
        {"name": "lumières de la cuisine", "domain": "light"},
        "D'accord, j'allume : lumières de la cuisine.",
    ),
    (
        "fr",
        "éteins la lampe du salon",
        "HassTurnOff",
        {"name": "lampe du salon", "domain": "light"},
        "D'accord, j'éteins : lampe du salon.",
    ),
    (
        "fr",
        "mets les lumières de la cuisine à cinquante pour cent",
        "HassLightSet",
        {"name": "lumières de la cuisine", "brightness": 50, "domain": "light"},
        "Luminosité réglée à 50 pour cent.",
    ),
    (
        "fr",
        "ouvre la porte du garage",
        "HassTurnOn",
        {"name": "porte du garage", "domain": "cover"},
        "D'accord, j'ouvre : porte du garage.",
    ),
    (
        "fr",
        "mets la température de la cuisine à vingt et un degrés",
        "HassClimateSetTemperature",
        {"area": "cuisine", "temperature": 21},
        "Température réglée à 21 degrés : chauffage de la cuisine.",
    ),
    (
        "fr",
        "mets un minuteur de vingt-cinq minutes",
        "HassStartTimer",
        {"minutes": 25},
        "Minuteur lancé pour 25 minutes.",
    ),
    (
        "fr",
        "ferme tous les volets",
        "HassTurnOff",
        {"device_class": "blind", "domain": "cover", "everywhere": True},
        "D'accord, je ferme : 4 appareils.",
    ),
    ("fr", "annule tous les minuteurs", "HassCancelAllTimers", {}, "Aucun minuteur en cours."),
    ("fr", "combien de temps reste-t-il", "HassTimerStatus", {}, "Aucun minuteur en cours."),
    ("fr", "quelle heure est-il", "HassGetCurrentTime", {}, "Il est 19 heures 43."),
    ("fr", "quel jour sommes-nous", "HassGetCurrentDate", {}, "Nous sommes samedi 21 novembre."),
    (
        "fr",
        "ajoute du lait à la liste de courses",
        "HassShoppingListAddItem",
        {"item": "lait"},
        "J'ai ajouté à la liste : lait.",
    ),
    (
        "es",
        "enciende las luces de la cocina",
        "HassTurnOn",
        {"name": "luces de la cocina", "domain": "light"},
        "De acuerdo, enciendo: luces de la cocina.",
    ),
    (
        "es",
        "apaga la lámpara del salón",
        "HassTurnOff",
        {"name": "lámpara del salón", "domain": "light"},
        "De acuerdo, apago: lámpara del salón.",
    ),
    (
        "es",
        "pon las luces de la cocina al cincuenta por ciento",
        "HassLightSet",
        {"name": "luces de la cocina", "brightness": 50, "domain": "light"},
        "Brillo al 50 por ciento.",
    ),
    (
        "es",
        "abre la puerta del garaje",
        "HassTurnOn",
        {"name": "puerta del garaje", "domain": "cover"},
        "De acuerdo, abro: puerta del garaje.",
    ),
    (
        "es",
        "pon la temperatura de la cocina a veintiún grados",
        "HassClimateSetTemperature",
        {"area": "cocina", "temperature": 21},
        "Temperatura a 21 grados: calefacción de la cocina.",
    ),
    (
        "es",
        "pon un temporizador de un minuto",
        "HassStartTimer",
        {"minutes": 1},
        "Temporizador de 1 minuto iniciado.",
    ),
    (
        "es",
        "cancela todos los temporizadores",
        "HassCancelAllTimers",
        {},
        "No hay ningún temporizador.",
    ),
    ("es", "cuánto tiempo queda", "HassTimerStatus", {}, "No hay ningún temporizador."),
    (
        "es",
        "qué hora es",
        "HassGetCurrentTime",
        {},
        "Son las siete y cuarenta y tres de la tarde.",
    ),
    ("es", "qué día es hoy", "HassGetCurrentDate", {}, "Hoy es sábado, 21 de noviembre."),
    (
        "es",
        "añade leche a la lista de la compra",
        "HassShoppingListAddItem",
        {"item": "leche"},
        "He añadido leche a la lista.",
    ),
    ("it", "imposta un timer di dieci minuti", "HassStartTimer", {"minutes": 10}, "Timer avviato."),
    ("nl", "hoe laat is het", "HassGetCurrentTime", {}, "Het is 19:43."),
]

ANSWERS = [
    ("de", "Wie wird das Wetter morgen?", "Das Wetter kenne ich noch nicht."),
    ("de", "was ist zwei plus drei", "Das ergibt 5."),
    ("de", "erzähl mir einen witz", "Das habe ich nicht verstanden."),
    ("de", "schalte das licht hier ein", "Das habe ich nicht verstanden."),
    ("de", "weck mich um sieben", "Wecken kann ich noch nicht, aber einen Timer stellen."),
    ("fr", "Quel temps fait-il demain ?", "Je ne connais pas encore la météo."),
    ("fr", "combien font deux plus trois", "Cela fait 5."),
    ("fr", "raconte une blague", "Je n'ai pas compris."),
    ("es", "¿Qué tiempo hace mañana?", "Todavía no conozco el tiempo."),
    ("es", "cuánto es dos más tres", "Son 5."),
    ("es", "cuéntame un chiste", "No lo he entendido."),
    ("it", "blabla", "Non ho capito."),
]


@pytest.mark.parametrize(("language", "text", "tool", "arguments", "reply"), COMMANDS)
def test_a_command_calls_its_tool_and_is_answered_in_its_language(
    language: str, text: str, tool: str, arguments: dict[str, Any], reply: str
) -> None:
    said = asyncio.run(Talk(language).say(text))
    assert said.calls == ((tool, arguments),)
    assert said.reply == reply


@pytest.mark.parametrize(("language", "text", "reply"), ANSWERS)
def test_a_sentence_without_a_tool_is_answered_in_its_language(
    language: str, text: str, reply: str
) -> None:
    said = asyncio.run(Talk(language).say(text))
    assert said.calls == ()
    assert said.reply.startswith(reply)


@pytest.mark.parametrize(
    ("language", "unlock", "lock", "open_it"),
    [
        ("en", "unlock the front door", "lock the front door", "open the front door"),
        ("de", "sperre die haustür auf", "sperre die haustür ab", "öffne die haustür"),
        (
            "fr",
            "déverrouille la porte d'entrée",
            "verrouille la porte d'entrée",
            "ouvre la porte d'entrée",
        ),
        (
            "es",
            "desbloquea la puerta de entrada",
            "bloquea la puerta de entrada",
            "abre la puerta de entrada",
        ),
    ],
)
def test_opening_a_door_never_unlocks_it(
    language: str, unlock: str, lock: str, open_it: str
) -> None:
    async def main() -> list[str]:
        talk = Talk(language)
        seen = []
        for text in (open_it, unlock, lock):
            await talk.say(text)
            seen.append(talk.home.entity("lock.hallway_door").state)
        assert talk.home.entity("cover.hallway_door").state == "open"
        return seen

    assert asyncio.run(main()) == ["locked", "unlocked", "locked"]


LIGHT = {
    "en": ("turn on the kitchen light", {"area": "kitchen", "domain": "light"}),
    "de": ("schalte das Küchenlicht ein", {"name": "küchenlicht", "domain": "light"}),
    "fr": (
        "allume la lumière de la cuisine",
        {"name": "lumière de la cuisine", "domain": "light"},
    ),
    "es": ("enciende la luz de la cocina", {"name": "luz de la cocina", "domain": "light"}),
}
AND = {"en": "and", "de": "und", "fr": "et", "es": "y"}
TIMER = {
    "en": "set a timer for five minutes",
    "de": "stelle einen Timer auf fünf Minuten",
    "fr": "mets un minuteur de cinq minutes",
    "es": "pon un temporizador de cinco minutos",
}
TEA = {
    "en": ("set a timer for five minutes called tea", "tea"),
    "de": ("stelle einen Tee Timer auf fünf Minuten", "tee"),
    "fr": ("mets un minuteur de cinq minutes pour le thé", "thé"),
    "es": ("pon un temporizador de cinco minutos para el té", "té"),
}
RICE = {
    "en": ("set a timer for rice and beans for five minutes", "rice and beans"),
    "de": ("stelle einen Timer für Reis und Bohnen auf fünf Minuten", "reis und bohnen"),
    "fr": ("mets un minuteur pour riz et haricots de cinq minutes", "riz et haricots"),
    "es": ("pon un temporizador para arroz y frijoles de cinco minutos", "arroz y frijoles"),
}


def _calls(language: str, text: str) -> list[tuple[str, dict[str, Any]]]:
    said = asyncio.run(Talk(language).say(text))
    return [(name, dict(arguments)) for name, arguments in said.calls]


@pytest.mark.parametrize("language", LIGHT)
def test_a_timer_does_not_take_words_of_another_command(language: str) -> None:
    sentence, slots = LIGHT[language]
    light, timer = ("HassTurnOn", slots), ("HassStartTimer", {"minutes": 5})
    for between in (f" {AND[language]} ", f", {AND[language]} ", ". ", ", "):
        assert _calls(language, sentence + between + TIMER[language]) == [light, timer], between
        assert _calls(language, TIMER[language] + between + sentence) == [timer, light], between
    named, name = TEA[language]
    tea = ("HassStartTimer", {"minutes": 5, "name": name})
    assert _calls(language, f"{named} {AND[language]} {sentence}") == [tea, light]
    assert _calls(language, f"{sentence} {AND[language]} {named}") == [light, tea]


@pytest.mark.parametrize("language", RICE)
def test_a_timer_may_be_named_for_two_things(language: str) -> None:
    sentence, name = RICE[language]
    assert _calls(language, sentence) == [("HassStartTimer", {"minutes": 5, "name": name})]


@pytest.mark.parametrize(
    ("language", "sentence", "call"),
    [
        (
            "de",
            "stelle einen Timer für die Nudeln und die Soße auf fünf Minuten",
            ("HassStartTimer", {"minutes": 5, "name": "nudeln und die soße"}),
        ),
        (
            "en",
            "cancel the timer for the rice and beans",
            ("HassCancelTimer", {"name": "the rice and beans"}),
        ),
    ],
)
def test_a_name_for_two_things_may_have_articles(
    language: str, sentence: str, call: tuple[str, dict[str, Any]]
) -> None:
    assert _calls(language, sentence) == [call]


@pytest.mark.parametrize(
    "beginning",
    [
        "frobnicate it and",
        "please frobnicate it and",
        "frobnicate the kitchen light and",
        "frobnicate the kitchen light.",
        "frobnicate all the lights",
    ],
)
def test_no_timer_is_set_by_a_half_understood_sentence(beginning: str) -> None:
    assert _calls("en", f"{beginning} set a timer for five minutes") == []


def test_most_languages_of_home_assistant_are_available() -> None:
    known = intents.create(intents.Settings()).languages
    assert {"en", "de", "fr", "es", "it", "nl", "pl", "pt", "zh"} <= set(known)
    assert len(known) >= 55


COMMANDS_OF_FURTHER_LANGUAGES = [
    ("it", "accendi le luci", "HassTurnOn", "Acceso: 14 luci."),
    (
        "it",
        "spegni la luce in camera da letto",
        "HassTurnOff",
        "Spento: luci della camera da letto e lampada della camera da letto.",
    ),
    ("it", "chiudi le tapparelle della cucina", "HassTurnOff", "Chiudo: tapparelle della cucina."),
    ("nl", "doe de keukenlamp aan", "HassTurnOn", "Aan: keukenverlichting."),
    (
        "nl",
        "zet de keukenlamp op 25 procent",
        "HassLightSet",
        "Helderheid 25 procent: keukenverlichting.",
    ),
    ("nl", "open de garagedeur", "HassTurnOn", "Gaat open: garagedeur."),
    ("pt", "apague as luzes do quarto", "HassTurnOff", "Desligado: luzes do quarto."),
    ("pt", "abra o portão da garagem", "HassTurnOn", "A abrir: portão da garagem."),
    ("pt", "defina um temporizador de cinco minutos", "HassStartTimer", "Temporizador iniciado."),
    ("pt", "que horas são", "HassGetCurrentTime", "São 19 horas e 43."),
    ("zh", "打开厨房的灯", "HassTurnOn", "已打开：厨房的灯。"),
    ("zh", "关闭客厅的窗帘", "HassTurnOff", "正在关闭：客厅窗帘。"),
    ("zh", "设置五分钟的计时器", "HassStartTimer", "好的，已开始计时."),
]


@pytest.mark.parametrize(("language", "text", "tool", "reply"), COMMANDS_OF_FURTHER_LANGUAGES)
def test_further_languages_know_the_demo_home(
    language: str, text: str, tool: str, reply: str
) -> None:
    said = asyncio.run(Talk(language).say(text))
    assert [name for name, _ in said.calls] == [tool]
    assert said.reply == reply


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("it", "non accendere la luce della cucina"),
        ("nl", "doe de keukenlamp niet aan"),
        ("pt", "não acenda a luz da cozinha"),
        ("zh", "不要打开厨房的灯"),
    ],
)
def test_a_negated_command_is_not_carried_out_in_further_languages(
    language: str, text: str
) -> None:
    said = asyncio.run(Talk(language).say(text))
    assert said.calls == ()


@pytest.mark.parametrize(
    ("asked", "used"),
    [("de", "de"), ("de-AT", "de"), ("zh", "zh"), ("xx", "en"), ("", "en"), ("../en", "en")],
)
def test_an_unknown_language_falls_back_to_english(asked: str, used: str) -> None:
    assert supported_language(asked) == used


def test_every_language_gives_an_answer() -> None:
    async def main() -> None:
        llm = intents.create(intents.Settings())
        specs = Talk().specs()
        for language in llm.languages[::4]:
            stream = llm.reply([Message("user", "qwertz uiop")], specs, language=language)
            answer = [delta async for delta in stream]
            assert len(answer) == 1
            assert isinstance(answer[0], TextDelta)
            assert answer[0].text

    asyncio.run(main())


@pytest.mark.parametrize(
    ("language", "now", "said"),
    [
        ("en", time(0, 0), "midnight"),
        ("en", time(0, 5), "twelve oh five am"),
        ("en", time(12, 0), "noon"),
        ("en", time(13, 0), "one pm"),
        ("en", time(9, 21), "nine twenty one am"),
        ("de", time(1, 0), "ein Uhr"),
        ("de", time(20, 5), "20 Uhr 5"),
        ("fr", time(1, 0), "1 heure"),
        ("fr", time(12, 0), "midi"),
        ("es", time(13, 15), "la una y quince de la tarde"),
        ("es", time(3, 0), "las tres de la madrugada"),
    ],
)
def test_times_are_spoken_as_people_say_them(language: str, now: time, said: str) -> None:
    assert clock_time(now, language) == said


def test_loading_does_not_block_the_event_loop() -> None:
    """It compares processor time: of this thread between two steps of the loop, and of the whole
    load."""

    async def main() -> tuple[float, float]:
        talk = Talk("de")
        some = talk.specs()[:5]  # no other test loads exactly these
        begin, last, longest = wall.process_time(), wall.thread_time(), 0.0
        async with asyncio.TaskGroup() as tasks:
            warming = tasks.create_task(talk.llm.warm("de", some))
            while not warming.done():
                await asyncio.sleep(0)
                now = wall.thread_time()
                longest, last = max(longest, now - last), now
        return longest, wall.process_time() - begin

    gc.disable()  # a full collection stops all threads, so it would count
    try:
        longest, whole = asyncio.run(main())
    finally:
        gc.enable()
    assert longest < whole / 2


@pytest.mark.parametrize(
    ("language", "name", "result", "reply"),
    [
        ("en", "AddItem", {"item": "stamps"}, "Added stamps to your list."),
        ("en", "GetItems", {"items": []}, "Your list is empty."),
        ("de", "AddItem", {"item": "milch"}, "Milch steht auf deiner Liste."),
        ("de", "GetItems", {"items": ["milch"]}, "Auf deiner Liste: Milch."),
        ("fr", "GetItems", {"items": ["lait"]}, "Sur ta liste : lait."),
        ("es", "GetItems", {"items": []}, "Tu lista está vacía."),
    ],
)
def test_the_answer_says_that_the_list_is_the_persons_own(
    language: str, name: str, result: dict[str, Any], reply: str
) -> None:
    answers = replies(language)
    match = IntentMatch(f"HassShoppingList{name}")
    told = {**result, "whose": "mine", "private_to": "spk_1"}
    assert answers.answer(match, told) == reply
