"""Learning a voice in a conversation: a tool that exists for some minutes after a person with a key
allowed it. Without that, a guest could say "I am Anna" and be Anna from then on."""

import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from core.ports import Clock, ToolContext, ToolOutcome, ToolSpec
from devices.registry.speakers import (
    MIN_ENROLMENT_MS,
    EnrolledSpeaker,
    EnrolledSpeakers,
    VoiceSample,
    caller_of,
    check_name,
)

LEARN = "learn_my_voice"
"Name of the tool."

MAX_MINUTES = 60
"Longest time for which learning may be allowed."

RECORDINGS = 3
"Recordings of a person that are asked for. More make the voice hardly surer."

FALLBACK = "en"
"Language of the sentences if there are none in the user's language."

_SPECS = (
    ToolSpec(
        LEARN,
        "Learns the voice of the user who asks for it. Ask for the name first. Call it again with"
        " the same name each time the user has read the sentence that it returned.",
        {
            "type": "object",
            "properties": {"name": {"type": "string", "description": "Name of the user"}},
            "required": ["name"],
            "additionalProperties": False,
        },
    ),
)
_NOTHING: Sequence[ToolSpec] = ()


class VoiceEnrolment:
    """A `ToolProvider` that learns the voice of the user who speaks, while it is allowed. The
    people are those of the key with which the session was opened, as in `EnrolledSpeakers`."""

    def __init__(self, people: EnrolledSpeakers, clock: Clock) -> None:
        self._people, self._clock = people, clock
        self._allowed_until: dict[str, datetime] = {}
        "Owner -> end of the time in which voices may be learned."
        self._begun: dict[str, dict[str, int]] = {}
        "Owner -> id of each person who was begun in this time, with the number of recordings."

    def allow(self, minutes: int) -> datetime:
        """Allows the caller's sessions to learn voices from now on. Returns the end. 0 minutes:
        not any more."""
        owner, until = caller_of(), self._clock.wall() + timedelta(minutes=minutes)
        self._allowed_until[owner], self._begun[owner] = until, {}
        return until

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        """Returns the tool while voices may be learned."""
        return _SPECS if self._is_allowed() else _NOTHING

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        """Learns the voice of this turn. Raises RequestError for a wrong name, Conflict
        too_many_samples or too_many_speakers, StorageError."""
        if not self._is_allowed():
            message = "somebody with a key has to allow it first"
            return ToolOutcome({"message": message}, error="not_allowed")
        person = " ".join(str(arguments.get("name", "")).split())
        check_name(person)
        known = next(
            (one for one in self._people.list_all() if one.name.casefold() == person.casefold()),
            None,
        )
        if known is not None and not await self._is_same(known, context):
            message = f"the voice of {known.name} is known already, and this voice is another one"
            return ToolOutcome({"message": message}, error="name_taken")
        begun = self._begun.setdefault(caller_of(), {})
        count = begun.get(known.id, 0) if known is not None else 0
        voice = await context.hear_voice()
        if voice is None or voice.speech_ms < MIN_ENROLMENT_MS:
            return _next(context.language, count)
        sample = VoiceSample(voice.model, voice.vector, voice.speech_ms)
        added = await self._people.add(known.name if known else person, sample)
        begun[added.id] = count + 1
        if count + 1 < RECORDINGS:
            return _next(context.language, count + 1)
        return ToolOutcome({"learned": True, "name": added.name})

    async def _is_same(self, known: EnrolledSpeaker, context: ToolContext) -> bool:
        """Returns whether a known person may get another recording: one who was begun in this time,
        or whose voice this surely is."""
        if known.id in self._begun.get(caller_of(), {}):
            return True
        speaker = (await context.confirm_speaker()).speaker
        return speaker is not None and speaker.id == known.id

    def _is_allowed(self) -> bool:
        until = self._allowed_until.get(caller_of())
        return until is not None and self._clock.wall() < until


def _next(language: str, count: int) -> ToolOutcome:
    """Returns the sentence to read after `count` recordings."""
    sentences = all_sentences().get(language) or all_sentences()[FALLBACK]
    left = RECORDINGS - count
    return ToolOutcome({"read_aloud": sentences[count % len(sentences)], "sentences_left": left})


@cache
def all_sentences() -> Mapping[str, tuple[str, ...]]:
    """Returns the sentences to read, by language (ISO 639-1)."""
    text = (files("devices.registry") / "voice_enrolment.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, tuple[str, ...]])
