"""Choice of the engine and voice that speak a response in its language. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from core.errors import RequestError
from engines.base import Tts
from pipeline.shared.settings import DEFAULT

VOICES_PATH = "/v1/audio/voices"
"Path of the REST API that lists all voices."

MAX_LISTED_VOICES = 12
"Most voices that an error lists. eSpeak alone has 130, in which nobody finds a typing error."

MAX_SIMILAR_VOICES = 3
"Most similar voices that an error names."

MAX_SHOWN_CHARS = 64
"Longest part of a requested name that an error repeats. A client may send a long text."


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
        raise unknown_voice_error(order, requested)
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


def unknown_voice_error(engines: Mapping[str, Tts], requested: str) -> RequestError:
    """Returns the error for a voice that no engine has. It lists all voices if they are few;
    otherwise the most similar ones, and where all of them are listed."""
    order = _in_order(engines)
    names = dict.fromkeys(
        name for tts in order.values() for voices in tts.info.voices.values() for name in voices
    )
    allowed = ", ".join(dict.fromkeys([DEFAULT, *order]))
    if len(names) <= MAX_LISTED_VOICES:
        hint = f"allowed: {', '.join([allowed, *names])}"
    else:
        similar = _similar_names(_parse(order, requested)[1], [*order, *names])
        hint = f"similar: {', '.join(similar)}; " if similar else ""
        hint += f"allowed: {allowed}, and {len(names)} voices, which GET {VOICES_PATH} lists"
    return RequestError(
        f"no voice {requested[:MAX_SHOWN_CHARS]!r}; {hint}", code="voice_not_found", param="voice"
    )


def _similar_names(name: str, names: Sequence[str]) -> list[str]:
    """Returns the names that are most like `name`, the nearest one first. Case does not count."""
    by_lower_case = {known.lower(): known for known in names}
    near = get_close_matches(
        name[:MAX_SHOWN_CHARS].lower(), by_lower_case, n=MAX_SIMILAR_VOICES, cutoff=0.5
    )
    return [by_lower_case[match] for match in near]
