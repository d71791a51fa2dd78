"""Makes the instructions for the language model: those of the client or operator, else the built-in
ones. Pure."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib.resources import files

import msgspec

from core.ports import DeviceLocation

FALLBACK = "en"
"Language of the built-in instructions for languages without their own."

CALLER = (
    "The user is a guest who calls by telephone. The name or number that the telephone network"
    " gives is: {caller}. It may be wrong."
)
"Sentence about a telephone call, with the field {caller}, in the language of all instructions."

KNOWN_CALLER = (
    "The user calls by telephone, from the number of {caller}, a person of the house, and is"
    " probably this person. The telephone network may be wrong."
)
"The same for a number that belongs to a person."


class InstructionTexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Built-in instructions in one language."""

    text: str
    "Main text."
    date: str
    "Sentence about the date, with the fields {weekday}, {day}, {month} and {year}."
    room: str
    "Sentence about the room, with the field {area}."
    weekdays: tuple[str, ...]
    "Names of the days, from Monday on."
    months: tuple[str, ...]
    other_language: str = ""
    "Sentence that is added when these instructions serve for a language without its own."


@dataclass(frozen=True, slots=True)
class DefaultInstructions:
    """Instructions by language (ISO 639-1), for when neither client nor operator gives any."""

    texts: Mapping[str, InstructionTexts] = field(default_factory=dict[str, InstructionTexts])
    "Empty: there are no instructions."

    def prompt(self, configured: str, language: str, today: date, place: DeviceLocation) -> str:
        """Returns the system prompt of one answer. `configured`: the instructions of the client or
        operator; empty for the built-in ones.

        Parts that change most often come last: model servers cache the beginning of prompts.
        """
        texts = self.texts.get(language) or self.texts.get(FALLBACK)
        if configured or texts is None:
            return add_location(configured, place)
        parts = [texts.text]
        if language not in self.texts and texts.other_language:
            parts.append(texts.other_language)
        day = texts.date.format(
            weekday=texts.weekdays[today.weekday()],
            day=today.day,
            month=texts.months[today.month - 1],
            year=today.year,
        )
        parts.append(day)
        if place.area:
            parts.append(texts.room.replace("{area}", place.area))
        if place.caller:
            parts.append(_caller_sentence(place))
        return "\n\n".join(parts)


NO_DEFAULT = DefaultInstructions()


def add_location(instructions: str, place: DeviceLocation) -> str:
    """Returns the instructions with the room and the caller, if they are known: tools of other
    servers cannot know them. They come last, so that all prompts share their beginning."""
    parts = [instructions] if instructions else []
    if place.area:
        parts.append(
            f"The user speaks in this area of the house: {place.area}. "
            "Commands that name no other area mean this one."
        )
    if place.caller:
        parts.append(_caller_sentence(place))
    return "\n\n".join(parts)


def _caller_sentence(place: DeviceLocation) -> str:
    sentence = KNOWN_CALLER if place.caller_id else CALLER
    return sentence.replace("{caller}", place.caller)


@cache
def bundled_instructions() -> DefaultInstructions:
    """Returns the instructions that come with Earshot."""
    text = (files("pipeline.conversation") / "instructions.toml").read_text(encoding="utf-8")
    return DefaultInstructions(msgspec.convert(tomllib.loads(text), dict[str, InstructionTexts]))
