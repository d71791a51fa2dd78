"""Choice of the engine and voice that speak a response in its language. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.errors import RequestError
from engines.base import Tts
from pipeline.shared.settings import DEFAULT


@dataclass(frozen=True, slots=True)
class VoiceChoice:
    """A TTS engine, and one of its voices."""

    engine: str
    tts: Tts
    voice: str
    "One of the engine's voices for the language."


def choose_voice(
    engines: Mapping[str, Tts], language: str, requested: str | None = None
) -> VoiceChoice:
    """Returns a voice that speaks `language`, as near to the requested one as possible.

    engines: in order of preference; DEFAULT may be among them.
    requested: a voice, an engine, or `engine:voice`. None and DEFAULT leave the choice open. A
        voice of another language stands for its engine: an English session that answers in German
        keeps its timbre if it can. Raises RequestError voice_not_found, unsupported_language.
    """
    order = _in_order(engines)
    if requested is None or requested == DEFAULT:
        return _first_that_speaks(order, language)
    engine, voice = _parse(order, requested)
    holders = [engine] if engine else [name for name in order if _has(order[name], voice)]
    if not holders or (voice and not _has(order[holders[0]], voice)):
        raise _unknown(order, requested)
    for name in holders:
        if _has(order[name], voice, language):
            return VoiceChoice(name, order[name], voice)
    near = {name: order[name] for name in holders}
    return _first_that_speaks({**near, **order}, language)


def fallback_voice(engines: Mapping[str, Tts], language: str, failed: Tts) -> VoiceChoice | None:
    """Returns a voice of another engine than `failed` for the language. None: there is none."""
    others = {name: tts for name, tts in _in_order(engines).items() if tts is not failed}
    try:
        return _first_that_speaks(others, language)
    except RequestError:
        return None


def _in_order(engines: Mapping[str, Tts]) -> dict[str, Tts]:
    """Returns the engines with the default first, each once and under its own name."""
    order: dict[str, Tts] = {}
    default = engines.get(DEFAULT)
    for name, tts in [*([(DEFAULT, default)] if default else []), *engines.items()]:
        if not any(tts is engine for engine in order.values()):
            own = next((n for n, engine in engines.items() if engine is tts and n != DEFAULT), name)
            order[own] = tts
    return order


def _parse(engines: Mapping[str, Tts], requested: str) -> tuple[str, str]:
    """Splits a requested name into engine and voice. Either may be empty."""
    if requested in engines:
        return requested, ""
    engine, colon, voice = requested.partition(":")
    return (engine, voice) if colon and engine in engines else ("", requested)


def _has(tts: Tts, voice: str, language: str | None = None) -> bool:
    """Returns whether the engine has the voice, in `language` if one is given.

    A voice of eSpeak may have a variant of its timbre: `en-gb+f3`.
    """
    languages = tts.info.voices if language is None else {language: tts.info.voices.get(language)}
    base = voice.partition("+")[0]
    return any(voice in names or base in names for names in languages.values() if names)


def _first_that_speaks(engines: Mapping[str, Tts], language: str) -> VoiceChoice:
    for name, tts in engines.items():
        if voices := tts.info.voices.get(language):
            return VoiceChoice(name, tts, voices[0])
    spoken = sorted({code for tts in engines.values() for code in tts.info.voices})
    raise RequestError(
        f"no voice speaks {language!r}; allowed: {', '.join(spoken)}",
        code="unsupported_language",
        param="language",
    )


def _unknown(engines: Mapping[str, Tts], requested: str) -> RequestError:
    voices = dict.fromkeys(
        voice for tts in engines.values() for names in tts.info.voices.values() for voice in names
    )
    known = ", ".join([DEFAULT, *engines, *voices])
    return RequestError(
        f"no voice {requested[:64]!r}; allowed: {known}", code="voice_not_found", param="voice"
    )
