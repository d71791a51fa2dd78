"""Instructions for the language model: those of the client or operator, else our own. Pure."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib.resources import files

import msgspec

from core.ports import DeviceLocation

FALLBACK = "en"


class InstructionTexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Our instructions in one language."""

    text: str
    date: str
    "With places for weekday, day, month and year."
    room: str
    "With a place for the area."
    weekdays: tuple[str, ...]
    "From Monday on."
    months: tuple[str, ...]
    other_language: str = ""
    "Added where it stands in for a language that has no instructions of its own."


@dataclass(frozen=True, slots=True)
class DefaultInstructions:
    """What a model is told where nobody else gives instructions, by language (ISO 639-1)."""

    texts: Mapping[str, InstructionTexts] = field(default_factory=dict[str, InstructionTexts])
    "Empty: nothing is told."

    def prompt(self, written: str, language: str, today: date, place: DeviceLocation) -> str:
        """The system prompt of one answer. `written`: what the client or the operator wants; empty
        for ours. What changes most often comes last: servers of models cache what a prompt begins
        with."""
        texts = self.texts.get(language) or self.texts.get(FALLBACK)
        if written or texts is None:
            return add_location(written, place)
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
        return "\n\n".join(parts)


NO_DEFAULT = DefaultInstructions()


def add_location(instructions: str, place: DeviceLocation) -> str:
    """The instructions, and the room, if it is known: tools of others cannot know it. Last, so that
    what is the same for every room stays a common beginning."""
    if not place.area:
        return instructions
    room = (
        f"The user speaks in this area of the house: {place.area}. "
        "Commands that name no other area mean this one."
    )
    return f"{instructions}\n\n{room}" if instructions else room


@cache
def bundled_instructions() -> DefaultInstructions:
    """The instructions that come with Earshot."""
    text = (files("pipeline.conversation") / "instructions.toml").read_text(encoding="utf-8")
    return DefaultInstructions(msgspec.convert(tomllib.loads(text), dict[str, InstructionTexts]))
