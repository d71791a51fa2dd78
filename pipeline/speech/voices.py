"""Meaning of a voice's name, and the choice of the voice that speaks a text in its language. Pure.

All doors find voices here, so that a name means the same voice everywhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from core.errors import RequestError
from engines.base import Gender, Tts
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
class VoiceRating:
    """How often people called samples of a voice good and bad."""

    good: int
    bad: int


@dataclass(frozen=True, slots=True)
class VoiceChoice:
    """A TTS engine, and one of its voices."""

    engine: str
    tts: Tts
    voice: str
    "One of the engine's voices for the language."


@dataclass(frozen=True, slots=True)
class EngineVoice:
    """One voice of one engine."""

    engine: str
    name: str
    "The engine's name for it, with the variant if one was asked for: `en-gb+f3`."
    languages: tuple[str, ...]
    "Codes of the languages that it speaks; two-letter codes (ISO 639-1) come first."
    gender: Gender | None
    "None: unknown."

    @property
    def id(self) -> str:
        """The name that means this voice whatever other engines have: `hibari/heart`."""
        return f"{self.engine}/{self.name}"


def list_voices(engines: Mapping[str, Tts]) -> tuple[EngineVoice, ...]:
    """Returns every voice of every engine once, those of the preferred engine first."""
    return tuple(
        _engine_voice(engine, tts, name, name)
        for engine, tts in _in_order(engines).items()
        for name in dict.fromkeys(_names(tts))
    )


def find_voices(engines: Mapping[str, Tts], requested: str) -> tuple[EngineVoice, ...]:
    """Returns the voices that a name means, that of the preferred engine first. (): unknown name.

    requested: a voice, or one of a certain engine as `engine/voice` or `engine:voice`. Case counts
        only if two names differ in nothing else. A voice of eSpeak may have a variant of its
        timbre: `en-gb+f3`.
    """
    order = _in_order(engines)
    return _matches(order, requested, _as_written) or _matches(order, requested, str.lower)


def choose_voice(
    engines: Mapping[str, Tts], language: str, requested: str | None = None
) -> VoiceChoice:
    """Returns a voice that speaks `language`, as near to the requested one as possible.

    engines: in order of preference; DEFAULT may be among them.
    requested: an engine, or a voice as for `find_voices`. None and DEFAULT leave the choice open. A
        voice of another language stands for its engine: an English session that answers in German
        keeps its timbre if it can. Raises RequestError voice_not_found, unsupported_language.
    """
    order = _in_order(engines)
    if requested is None or requested == DEFAULT:
        return _first_that_speaks(order, language)
    if requested in order:
        return _first_that_speaks({requested: order[requested], **order}, language)
    voices = find_voices(order, requested)
    if not voices:
        raise unknown_voice_error(order, requested)
    for voice in voices:
        if language in voice.languages:
            return VoiceChoice(voice.engine, order[voice.engine], voice.name)
    near = {voice.engine: order[voice.engine] for voice in voices}
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


def _matches(
    order: Mapping[str, Tts], requested: str, fold: Callable[[str], str]
) -> tuple[EngineVoice, ...]:
    """Returns the voices of the first reading of a name that is one. fold: form of names that is
    compared."""
    for engines, name in _readings(order, requested):
        found = (_match(engine, tts, name, fold) for engine, tts in engines.items())
        if voices := tuple(voice for voice in found if voice):
            return voices
    return ()


def _readings(order: Mapping[str, Tts], requested: str) -> Iterator[tuple[Mapping[str, Tts], str]]:
    """Yields what a name may mean: the engines to search, and the voice's name there.

    Names of voices may contain slashes, as Piper's with several speakers do.
    """
    engine, colon, voice = requested.partition(":")
    if colon and engine in order:
        yield {engine: order[engine]}, voice
        return
    yield order, requested
    engine, slash, voice = requested.partition("/")
    if slash and engine in order:
        yield {engine: order[engine]}, voice


def _match(engine: str, tts: Tts, name: str, fold: Callable[[str], str]) -> EngineVoice | None:
    known = {fold(own): own for own in _names(tts)}
    if own := known.get(fold(name)):
        return _engine_voice(engine, tts, own, own)
    base, plus, variant = name.partition("+")
    own = known.get(fold(base)) if plus else None
    return _engine_voice(engine, tts, own, f"{own}+{variant}") if own else None


def _engine_voice(engine: str, tts: Tts, own: str, name: str) -> EngineVoice:
    """Returns a voice. own: its name in the engine's list; name: the same with a variant."""
    languages = [code for code, names in tts.info.voices.items() if own in names]
    gender = tts.info.genders.get(own) if own == name else None
    return EngineVoice(engine, name, tuple(sorted(languages, key=len)), gender)


def _names(tts: Tts) -> Iterator[str]:
    return (name for names in tts.info.voices.values() for name in names)


def _as_written(name: str) -> str:
    return name


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
        *_, (_, name) = _readings(order, requested)
        similar = _similar_names(name, [*order, *names])
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
