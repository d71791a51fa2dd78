""" "Turn on the lights", said in the kitchen: the sentence with the room in it.

`conversation/process` takes no device, so Home Assistant cannot know where somebody speaks
(home-assistant.md, section 3). A sentence with the room added is used only if it is understood as
the same command about that room: grammar differs too much to trust a pattern.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

TextParser = Callable[[str], tuple[str, Mapping[str, Any]] | None]
"A sentence -> its intent and slots; None when no sentence fits."

SAYS_WHERE = ("area", "name", "floor", "preferred_area_id")
"Slots with one of which a command needs no room."

MEANT_HERE = (
    "HassClimateGetTemperature",
    "HassClimateSetTemperature",
    "HassFanSetSpeed",
    "HassLightSet",
    "HassSetPosition",
    "HassTurnOff",
    "HassTurnOn",
)
"What is meant for the room when it does not say where; music and questions are for the house."

PATTERNS: Mapping[str, tuple[str, ...]] = {
    "en": ("{text} in the {area}", "{text} in {area}"),
    "de": (
        "{text} im {area}",
        "{text} in der {area}",
        "{first} im {area} {last}",
        "{first} in der {area} {last}",
        "{first} in {area} {last}",
        "{text} in {area}",
    ),
    "fr": (
        "{text} de la {area}",
        "{text} du {area}",
        "{text} dans la {area}",
        "{text} dans le {area}",
        "{text} de l'{area}",
    ),
    "es": (
        "{text} de la {area}",
        "{text} del {area}",
        "{text} en la {area}",
        "{text} en el {area}",
    ),
}
"`first` and `last`: all words but the last, and that one: German verbs end a sentence."


def wants_room(intent: str, slots: Mapping[str, Any]) -> bool:
    """Whether a command means the room it is said in."""
    if slots.get("everywhere") or any(slots.get(key) for key in SAYS_WHERE):
        return False
    return intent in MEANT_HERE


def with_room(text: str, area: str, language: str, understand: TextParser) -> str | None:
    """The sentence with the room in it; None when none of ours is understood."""
    wanted = understand(text)
    if wanted is None:
        return None
    for sentence in _tried(text.strip(" .!?"), area, language):
        found = understand(sentence)
        if found is None or found[0] != wanted[0]:
            continue
        if str(found[1].get("area", "")).casefold() == area.casefold() and not found[1].get("name"):
            return sentence
    return None


def _tried(text: str, area: str, language: str) -> Iterator[str]:
    first, _, last = text.rpartition(" ")
    for pattern in PATTERNS.get(language.partition("-")[0], ()):
        yield pattern.format(text=text, area=area, first=first, last=last)
