"""Reads and checks the events of Wyoming's clients; an error names the wrong field."""

from dataclasses import dataclass, replace
from reprlib import repr as shown

from wyoming.event import Event

from core.errors import RequestError
from engines.base import AsrInfo, AsrOptions
from engines.base.wake import WakeWordEngine, wake_words
from media.files.raw import BITS
from pipeline.services import EngineSet
from pipeline.shared.settings import DEFAULT
from pipeline.speech.voices import find_voices

MAX_TEXT_CHARS = 16_384
"""Limit of a text to speak or to answer; a long reply of a language model has a few thousand
characters."""

MAX_HOTWORDS_CHARS = 4096
MAX_ID_CHARS = 128
RATES_HZ = (8000, 192_000)
"Lowest and highest sample rate."
MAX_CHANNELS = 8


@dataclass(frozen=True, slots=True)
class WyomingAudioFormat:
    """Format of the audio in `audio-chunk`: signed PCM."""

    rate_hz: int
    bits: int
    channels: int


def read_format(event: Event) -> WyomingAudioFormat:
    """Reads the format in `audio-start` and `audio-chunk`. Raises RequestError."""
    rate_hz, width, channels = (_integer(event, key) for key in ("rate", "width", "channels"))
    widths = [bits // 8 for bits in BITS]
    _check(RATES_HZ[0] <= rate_hz <= RATES_HZ[1], "rate", rate_hz, "8000 to 192000 Hz")
    _check(width in widths, "width", width, f"{', '.join(map(str, widths))} bytes, signed")
    _check(1 <= channels <= MAX_CHANNELS, "channels", channels, f"1 to {MAX_CHANNELS}")
    return WyomingAudioFormat(rate_hz, width * 8, channels)


def read_transcribe(event: Event, engines: EngineSet) -> tuple[str, AsrOptions]:
    """Reads the model's name and the options in `transcribe`.

    Raises RequestError, and NotFound model_not_found.
    """
    model = _text(event, "name") or DEFAULT
    info = engines.recogniser(model, param="name").info
    options = AsrOptions(language=_language(event, info))
    named = [*_texts(event, "transcript_names"), *_texts(event, "transcript_terms")]
    if named and "hotwords" in info.supports:
        hotwords = ", ".join(dict.fromkeys(named))
        options = replace(options, hotwords=hotwords[:MAX_HOTWORDS_CHARS].rpartition(",")[0])
        if len(hotwords) <= MAX_HOTWORDS_CHARS:
            options = replace(options, hotwords=hotwords)
    return model, options


def _language(event: Event, info: AsrInfo) -> str | None:
    language = base_language(_text(event, "language"))
    if language is None or language in info.languages:
        return language
    raise RequestError(
        f"{info.name} does not recognise {language!r}; allowed: {', '.join(info.languages)}",
        code="unsupported_language",
        param="language",
    )


def base_language(tag: str) -> str | None:
    """Returns `en` for `en-US`; None for an empty tag."""
    return tag.lower().replace("_", "-").partition("-")[0] or None


def read_detect(
    event: Event, engine: WakeWordEngine | None
) -> tuple[WakeWordEngine, tuple[str, ...]]:
    """Reads `detect`: returns the engine and the names of the wake words. Raises RequestError."""
    if engine is None or not wake_words(engine):
        raise RequestError("this server knows no wake words", code="not_available", param="names")
    known = [word.name for word in wake_words(engine)]
    names = tuple(dict.fromkeys(_texts(event, "names"))) or tuple(known)
    for name in names:
        _check(name in known, "names", name, ", ".join(known))
    return engine, names


def read_timestamp(event: Event) -> int | None:
    """Reads the timestamp in `audio-start` and `audio-chunk`, in ms. Raises RequestError."""
    return None if event.data.get("timestamp") is None else _integer(event, "timestamp")


@dataclass(frozen=True, slots=True)
class VoiceRequest:
    """Voice and language for a text; None: not given."""

    voice: str | None
    language: str | None


def read_voice_request(event: Event, engines: EngineSet) -> VoiceRequest:
    """Reads voice and language in `synthesize` and `synthesize-start`. Raises RequestError."""
    kind = _text(event, "text_format") or "text"
    _check(kind == "text", "text_format", kind, "text (no voice here reads SSML)")
    voice = event.data.get("voice")
    if voice is None:
        return VoiceRequest(None, None)
    if not isinstance(voice, dict):
        raise RequestError("voice must be an object", code="invalid_value", param="voice")
    voice_event = Event(event.type, voice)
    name = _text(voice_event, "name") or None
    language = base_language(_text(voice_event, "language"))
    return VoiceRequest(name, language or (voice_language(name, engines) if name else None))


def voice_language(name: str, engines: EngineSet) -> str | None:
    """Returns the language of a voice: the server's default if the voice speaks it; None: unknown
    voice."""
    spoken = [code for voice in find_voices(engines.tts, name) for code in voice.languages]
    return (
        engines.default_language if engines.default_language in spoken else next(iter(spoken), None)
    )


def read_text(event: Event) -> str:
    """Returns `text`, unchanged. Raises RequestError."""
    text = _text(event, "text", max_chars=MAX_TEXT_CHARS)
    if event.data.get("text") is None:
        raise RequestError(
            f"{event.type} has no text", code="missing_required_parameter", param="text"
        )
    return text


def conversation_of(event: Event) -> str | None:
    """Returns `context.conversation_id` with a prefix; None: there is none.

    The prefix keeps clients out of the conversations of other doors. Raises RequestError.
    """
    context = event.data.get("context")
    if not isinstance(context, dict):
        return None
    found = _text(Event(event.type, context), "conversation_id", max_chars=MAX_ID_CHARS)
    return f"wyoming-{found}" if found else None


def text_language(event: Event) -> str | None:
    """Returns `language` of a `transcript`, without its region."""
    return base_language(_text(event, "language"))


def _integer(event: Event, key: str) -> int:
    found = event.data.get(key)
    if isinstance(found, bool) or not isinstance(found, int):
        raise RequestError(
            f"{event.type}: {key} must be a whole number", code="invalid_value", param=key
        )
    return found


def _text(event: Event, key: str, *, max_chars: int = 256) -> str:
    found = event.data.get(key)
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > max_chars:
        raise RequestError(
            f"{event.type}: {key} must be a text of at most {max_chars} characters",
            code="invalid_value",
            param=key,
        )
    return found


def _texts(event: Event, key: str) -> list[str]:
    found: object = event.data.get(key) or []
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise RequestError(
            f"{event.type}: {key} must be a list of texts", code="invalid_value", param=key
        )
    return [" ".join(text.replace(",", " ").split()) for text in found if text.strip()]


def _check(is_right: bool, param: str, value: object, allowed: str) -> None:
    if not is_right:
        raise RequestError(
            f"{param} is {shown(value)}; allowed is {allowed}", code="invalid_value", param=param
        )
