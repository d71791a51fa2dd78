"""Misheard names are corrected; other words are left alone."""

import time

import pytest

from core.ports import HomeDescription, ToolSpec
from engines.llm.intents import understand
from engines.llm.intents.language import language_data
from engines.llm.intents.phonetic_match import PhoneticMatcher, phonetic_distance, phonetic_key

pytestmark = pytest.mark.live

HOUSE = HomeDescription(
    areas=("Kitchen", "Bedroom", "Living Room", "Küche", "Wohnzimmer"),
    devices=(
        ("light", "Kitchen Lights"),
        ("light", "Ceiling Lights"),
        ("light", "Bed Light"),
        ("light", "Küchenlicht"),
        ("light", "Stehlampe"),
        ("light", "lámpara del salón"),
        ("light", "lumière du couloir"),
        ("cover", "Garage Door"),
        ("cover", "Hall Window"),
        ("climate", "Heater"),
        ("lock", "Front Door"),
        ("switch", "Coffee Machine"),
        ("fan", "Ceiling Fan"),
    ),
)
TOOLS = (ToolSpec("home_assistant", "", {}, house=HOUSE),)


@pytest.mark.parametrize(
    ("heard", "meant", "language"),
    [
        ("turn on the ceiling rights", "turn on the ceiling lights", "en"),
        ("turn on the sealing lights", "turn on the ceiling lights", "en"),
        ("turn on the feeling lights", "turn on the ceiling lights", "en"),
        ("turn on the bad light", "turn on the bed light", "en"),
        ("turn off the bedlight", "turn off the bed light", "en"),
        ("turn off the coffee martine", "turn off the coffee machine", "en"),
        ("set the heather to 21 degrees", "set the heater to 21 degrees", "en"),
        ("turn on the sealing fun", "turn on the ceiling fan", "en"),
        ("turn on the lights in the kitten", "turn on the lights in the kitchen", "en"),
        ("schalte die steh lampe ein", "schalte die stehlampe ein", "de"),
        ("schalte das küchengericht ein", "schalte das küchenlicht ein", "de"),
        ("schalte das licht im wohnzimmern ein", "schalte das licht im wohnzimmer ein", "de"),
        ("allume la lumière du couloire", "allume la lumière du couloir", "fr"),
        ("enciende la lampara del salon", "enciende la lámpara del salón", "es"),
    ],
)
def test_a_misheard_name_is_corrected(heard: str, meant: str, language: str) -> None:
    found = understand(heard, language, TOOLS)
    assert found == understand(meant, language, TOOLS)
    assert found is not None


@pytest.mark.parametrize(
    "said",
    [
        "turn on the toaster",  # there is none: an answer is better than a switched other device
        "turn on the ceiling",  # lights or fan: both are possible
        "unlock the fund door",  # locks are not guessed at
        "close the garbage door",  # nor covers and doors
        "open the hole window",
        "turn on the front store",  # the lock is nearest: no lamp instead of it
        "is the garbage door open",  # no guess in a question either
        "turn on the bathroom light",  # this room does not exist; Bed Light and Bedroom do
        "turn on the lights in the bathroom",
        "turn on the garden lights",
        "turn on the bed light 2",
        "turn on the ceiling fan two",
        "open the blinds in the kitten",  # no cover in a guessed room either
        "why is the sky blue",
        "tell me about garages in germany",
        "the kitten sleeps",
    ],
)
def test_a_distant_ambiguous_or_dangerous_match_is_not_used(said: str) -> None:
    assert understand(said, "en", TOOLS) is None


@pytest.mark.parametrize(
    ("said", "only", "language"),
    [
        ("turn on the bathroom light", "Bedroom Light", "en"),
        ("turn on the dining room light", "Living Room Light", "en"),
        ("turn on lamp 3", "Lamp 1", "en"),
        ("turn off all the lights", "Hall Light", "en"),
        ("schalte das licht im wohnzimmer ein", "Badezimmer", "de"),
        ("schalte das badezimmerlicht ein", "Wohnzimmerlicht", "de"),
        ("allume la lumière du salon", "lumière du balcon", "fr"),
        ("enciende la luz de la cocina", "luz de la oficina", "es"),
    ],
)
def test_a_correct_word_is_not_replaced_by_another_name(
    said: str, only: str, language: str
) -> None:
    corrections = PhoneticMatcher(
        [only], protected_words=language_data(language).protected_words
    ).corrections(said)
    assert not [one for one in corrections if only.lower() in one]


def test_neither_a_guarded_name_nor_the_next_nearest_is_used() -> None:
    names = PhoneticMatcher(["Fronting Lamp"], guarded=["Front Lamp"])
    assert names.corrections("turn on the fronk lamp") == []
    assert PhoneticMatcher(["Front Lamp"]).corrections("turn on the fronk lamp")


def test_a_sentence_that_is_understood_is_not_changed() -> None:
    found = understand("turn on the bed light", "en", TOOLS)
    assert found is not None
    assert (found.slots["name"], found.text) == ("bed light", "turn on the bed light")


def test_no_choice_is_made_between_two_equally_near_names() -> None:
    likely = PhoneticMatcher(["hall lamp", "ball lamp"]).corrections("turn on the wall lamp")
    assert not {"turn on the hall lamp", "turn on the ball lamp"} & set(likely)


def test_phonetic_keys_compare_sounds() -> None:
    assert phonetic_key("Küchenlicht") == phonetic_key("kuchenlicht")
    assert phonetic_key("phone") == phonetic_key("fone")
    assert phonetic_distance("", "") == 0
    assert phonetic_distance("lit", "lat") == 0.5
    assert phonetic_distance("abk", "") == 2.5


def test_thousands_of_names_are_searched_in_little_time() -> None:
    rooms = ("kitchen", "office", "bedroom", "garage", "attic", "bathroom", "hall", "garden")
    things = ("lamp", "light", "fan", "heater", "blind", "curtain", "socket", "speaker")
    many = PhoneticMatcher(
        [f"{a} {b} {n}" for a in rooms for b in things for n in "abcdefghijklmnopqrst"]
    )
    began_s = time.process_time()
    many.corrections("who was the first man on the far moon")
    assert time.process_time() - began_s < 0.2
