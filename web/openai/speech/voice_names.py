"""Finds the voice that a client names: one of this server, or a name of OpenAI's service."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from engines.base import Tts
from pipeline.shared.settings import DEFAULT
from pipeline.speech.voices import unknown_voice_error

_FIRST_VOICES = ("alloy", "echo", "fable", "nova", "onyx", "shimmer")
_LATER_VOICES = ("ash", "ballad", "cedar", "coral", "marin", "sage", "verse")

OPENAI_VOICES = frozenset((*_FIRST_VOICES, *_LATER_VOICES))
"""Names of OpenAI's service. Clients send one because the field is required. Each speaks every
language, so the name says nothing about the language."""


def requested_voice(engines: Mapping[str, Tts], name: str) -> tuple[str | None, str | None]:
    """Returns the voice, in the form that `choose_voice` takes, and its language. None: the client
    leaves the choice to the server.

    name: a voice, `engine:voice` or an engine. A voice may carry a variant, `en-us+f3`.
    Raises RequestError voice_not_found.
    """
    engine, colon, voice = name.partition(":")
    if not (colon and engine in engines):
        engine, voice = "", name
    base, plus, variant = voice.partition("+")
    searched_engines = {engine: engines[engine]} if engine else engines
    for language, known_voice in _voices(searched_engines):
        if known_voice.lower() == base.lower():
            requested = f"{engine}{colon if engine else ''}{known_voice}{plus}{variant}"
            return requested, None if known_voice in OPENAI_VOICES else language
    if name.lower() in (*OPENAI_VOICES, "", DEFAULT):
        return None, None
    if name in engines:
        return name, None
    raise unknown_voice_error(engines, name)


class VoiceCard(Struct, frozen=True):
    """One voice, in the form that voice pickers read."""

    id: str
    "Value for the field `voice`."
    name: str
    "Name for people."
    language: str
    "ISO 639-1 code."


class VoiceList(Struct, frozen=True):
    """All voices."""

    voices: tuple[VoiceCard, ...]


class VoiceModelCard(Struct, frozen=True):
    """One TTS engine, in the form that pickers read."""

    id: str
    name: str


class VoiceModelList(Struct, frozen=True):
    """All TTS engines."""

    models: tuple[VoiceModelCard, ...]


def voice_list(engines: Mapping[str, Tts], default_language: str) -> VoiceList:
    """Returns every voice once, those of the language `default_language` first.

    A voice of several languages or engines is listed once, with the language in which it comes
    first."""
    cards: dict[str, VoiceCard] = {}
    for language, name in sorted(_voices(engines), key=lambda voice: voice[0] != default_language):
        cards.setdefault(name, VoiceCard(name, name, language))
    return VoiceList((VoiceCard(DEFAULT, DEFAULT, default_language), *cards.values()))


def voice_model_list(engines: Mapping[str, Tts]) -> VoiceModelList:
    """Returns the engines that speak, `default` first."""
    names = dict.fromkeys([DEFAULT, *engines])
    return VoiceModelList(tuple(VoiceModelCard(name, name) for name in names))


def _voices(engines: Mapping[str, Tts]) -> Iterator[tuple[str, str]]:
    """Yields language and name of each voice."""
    for tts in engines.values():
        for language, names in tts.info.voices.items():
            for name in names:
                yield language, name
