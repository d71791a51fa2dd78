"""Guards: tools and devices that only some people may use, known by their voices.

A guard asks for more than the name that a turn has: `ToolContext.confirm_speaker` compares all of
the turn's sound, and refuses where it is in doubt.
"""

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated

from msgspec import Meta, Struct, convert, field

from core.ports import Clock, SpeakerConfirmation, ToolContext, ToolOutcome
from pipeline.shared.spoken_codes import SpokenCodes

NOT_ALLOWED = "not_allowed"
"Error of a call that a guard refused."

MAX_WRONG_CODES = 5
"Most calls without the right code in CODE_WINDOW_S: a code of four digits must not be guessed."
CODE_WINDOW_S = 300.0

PERSON_ID_PREFIX = "spk_"
"Beginning of the ids of people; anything else in `locks` is a name."

FALLBACK = "en"
"Language of the refusals if there are none in the user's language."


class GuardSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a guard: what it guards, and the people who may use it."""

    locks: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            min_length=1,
            description=(
                "The only people who may use it: names of people of the server's own key, or ids"
                " (spk_...) of anybody."
            ),
        ),
    ]
    tools: Annotated[tuple[str, ...], Meta(description="Names of tools, such as HassTurnOff.")] = ()
    devices: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Ids of devices of the home, such as lock.hallway_door. Everybody may ask for"
                " their states."
            )
        ),
    ] = ()
    code: Annotated[
        str,
        Meta(
            pattern=r"^(\d{4,12}|[^\W\d_]{4,40})?$",
            description=(
                "4 to 12 digits, or a word, that must be said in the same sentence; empty: none."
            ),
        ),
    ] = ""

    def __post_init__(self) -> None:
        if not (self.tools or self.devices):
            raise ValueError("a guard needs tools or devices, the names of what it guards")

    def admits(self, confirmation: SpeakerConfirmation) -> bool:
        """Returns whether the person may use what it guards."""
        speaker = confirmation.speaker
        if speaker is None:
            return False
        # The holder of a named key can call any voice "Anna": only the owner's names are trusted.
        names = {name.casefold() for name in self.locks if not name.startswith(PERSON_ID_PREFIX)}
        is_named = confirmation.is_owners and speaker.name.casefold() in names
        return is_named or speaker.id in self.locks


class RefusalSentences(Struct, frozen=True, forbid_unknown_fields=True):
    """Sentences of one language."""

    refused: str
    "Refusal for a guest, for an unknown voice, and for a person who may not."
    code: str
    "Answer to a person who may, but did not say the code."
    digits: tuple[str, ...] = field(default_factory=tuple)
    "Words for the digits 0 to 9, each with other forms after a bar."


class Guards:
    """The guards of the configuration, by name."""

    def __init__(self, guards: Mapping[str, GuardSettings], clock: Clock | None = None) -> None:
        """`clock`: needed where a guard has a code."""
        self._guards, self._clock = guards, clock
        self._wrong_codes: dict[str, list[float]] = {}
        "Name of a guard -> monotonic seconds of calls without the right code."

    @property
    def devices(self) -> frozenset[str]:
        """Ids of all guarded devices."""
        return frozenset(device for guard in self._guards.values() for device in guard.devices)

    @property
    def tools(self) -> frozenset[str]:
        """Names of all guarded tools."""
        return frozenset(tool for guard in self._guards.values() for tool in guard.tools)

    def codes(self) -> SpokenCodes:
        """Returns the codes, which are taken out of transcripts in all languages."""
        codes = {name: guard.code for name, guard in self._guards.items() if guard.code}
        words = (
            (form, str(digit))
            for sentences in all_sentences().values()
            for digit, forms in enumerate(sentences.digits)
            for form in forms.split("|")
        )
        return SpokenCodes(codes, dict(words) if codes else {})

    async def refuse_tool(self, names: Iterable[str], context: ToolContext) -> ToolOutcome | None:
        """Returns the refusal of a call of a tool; None if it is allowed. `names`: of the tool."""
        return await self._refuse(self._named(names, ()), context)

    async def refuse_devices(
        self, ids: Collection[str], context: ToolContext
    ) -> ToolOutcome | None:
        """Returns the refusal of a change of these devices; None if it is allowed."""
        return await self._refuse(self._named((), ids), context)

    def _named(self, tools: Iterable[str], devices: Iterable[str]) -> Sequence[str]:
        wanted_tools, wanted_devices = set(tools), set(devices)
        return [
            name
            for name, guard in self._guards.items()
            if wanted_tools.intersection(guard.tools) or wanted_devices.intersection(guard.devices)
        ]

    async def _refuse(self, names: Sequence[str], context: ToolContext) -> ToolOutcome | None:
        if not names:
            return None
        confirmation = await context.confirm_speaker()
        sentences = refusal_sentences(context.language)
        if not all(self._guards[name].admits(confirmation) for name in names):
            message = "only some people may do this, and the voice is not surely one of theirs"
            return _refusal(message, sentences.refused)
        for name in names:
            if not self._guards[name].code:
                continue
            if self._has_too_many_wrong_codes(name):
                minutes = CODE_WINDOW_S / 60
                message = f"the right code was missing too often; wait {minutes:.0f} minutes"
                return _refusal(message, sentences.refused)
            if name not in confirmation.spoken_codes:
                self._wrong_codes[name].append(self._now())
                return _refusal("the user must say the code with the command", sentences.code)
        return None

    def _has_too_many_wrong_codes(self, name: str) -> bool:
        since = self._now() - CODE_WINDOW_S
        recent = [at for at in self._wrong_codes.get(name, ()) if at > since]
        self._wrong_codes[name] = recent
        return len(recent) >= MAX_WRONG_CODES

    def _now(self) -> float:
        assert self._clock is not None
        return self._clock.now()


NO_GUARDS = Guards({})


def refusal_sentences(language: str) -> RefusalSentences:
    """Returns the sentences in a language, or else in English."""
    sentences = all_sentences()
    return sentences.get(language) or sentences[FALLBACK]


@cache
def all_sentences() -> Mapping[str, RefusalSentences]:
    """Returns the sentences by language (ISO 639-1)."""
    text = (files("pipeline.tools") / "guards.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text), dict[str, RefusalSentences])


def _refusal(message: str, speech: str) -> ToolOutcome:
    return ToolOutcome({"message": message, "speech": speech}, error=NOT_ALLOWED)
