"""Lists voices and voice engines in the form that pickers read."""

from collections.abc import Mapping
from urllib.parse import quote

from msgspec import Struct

from core.errors import RequestError
from engines.base import Gender, Tts
from pipeline.shared.settings import DEFAULT
from pipeline.speech.voices import VOICES_PATH, choose_voice, find_voices, list_voices


class VoiceCard(Struct, frozen=True):
    """One voice."""

    id: str
    "Value for the field `voice`, here and in all other doors: engine and voice, `hibari/heart`."
    name: str
    "Name for people. The engine's own; other engines may have the same."
    language: str
    "ISO 639-1 code."
    languages: tuple[str, ...]
    "Codes of all languages that it speaks: mostly ISO 639-1; eSpeak has more."
    gender: Gender | None
    "Gender of the voice, as its makers state it; null: unknown."
    engine: str
    sample: str
    "Path of a short sound file (WAV) in which the voice speaks a sentence."


class VoiceList(Struct, frozen=True):
    """All voices, or those that the query selects."""

    voices: tuple[VoiceCard, ...]


class VoiceModelCard(Struct, frozen=True):
    """One voice engine."""

    id: str
    name: str


class VoiceModelList(Struct, frozen=True):
    """All voice engines."""

    models: tuple[VoiceModelCard, ...]


def voice_list(
    engines: Mapping[str, Tts], default_language: str, *, language: str = "", engine: str = ""
) -> VoiceList:
    """Returns every voice once, those of `default_language` first. The server's own choice,
    `default`, is listed before them unless the list is filtered.

    language, engine: only voices that speak it, and of this engine; empty: all. Raises RequestError
    unsupported_language, invalid_value.
    """
    voices = list_voices(engines)
    if language:
        _check("language", language, {code for one in voices for code in one.languages})
    if engine:
        _check("engine", engine, {one.engine for one in voices})
    cards = [
        VoiceCard(
            one.id,
            one.name,
            language or _main_language(one.languages, default_language),
            one.languages,
            one.gender,
            one.engine,
            sample_path(one.id, language if len(one.languages) > 1 else ""),
        )
        for one in voices
        if (not language or language in one.languages) and (not engine or engine == one.engine)
    ]
    cards.sort(key=lambda card: card.language != default_language)
    default = None if language or engine else _default_card(engines, default_language)
    return VoiceList((*((default,) if default else ()), *cards))


def voice_model_list(engines: Mapping[str, Tts]) -> VoiceModelList:
    """Returns the engines that speak, `default` first."""
    names = dict.fromkeys([DEFAULT, *engines])
    return VoiceModelList(tuple(VoiceModelCard(name, name) for name in names))


def sample_path(voice: str, language: str = "") -> str:
    """Returns the path of a voice's sample. `language`: of the sentence; empty: the voice's own."""
    query = f"?language={language}" if language else ""
    return f"{VOICES_PATH}/{quote(voice, safe='/+')}/sample{query}"


def _default_card(engines: Mapping[str, Tts], language: str) -> VoiceCard | None:
    """Returns the card of the server's own choice; None if no voice speaks the language."""
    try:
        choice = choose_voice(engines, language)
    except RequestError:
        return None
    (voice, *_) = find_voices({choice.engine: choice.tts}, choice.voice)
    spoken = tuple(sorted({code for tts in engines.values() for code in tts.info.voices}))
    path = sample_path(DEFAULT)
    return VoiceCard(DEFAULT, DEFAULT, language, spoken, voice.gender, voice.engine, path)


def _main_language(languages: tuple[str, ...], default: str) -> str:
    return default if default in languages else languages[0]


def _check(param: str, value: str, known: set[str]) -> None:
    """Raises RequestError for a filter that no voice can match."""
    if value not in known:
        raise RequestError(
            f"Invalid value for {param!r}: {value[:64]!r}. Allowed: {', '.join(sorted(known))}.",
            code="unsupported_language" if param == "language" else "invalid_value",
            param=param,
        )
