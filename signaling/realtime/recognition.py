"""How the user's speech is to be heard: what clients send of it, and what they are shown."""

from dataclasses import replace
from typing import Any

from msgspec import UnsetType

from pipeline.settings import SessionSettings
from signaling.realtime.session_object import Decoding, NoiseReduction, Transcription
from signaling.realtime.wire import Sent, kept

_FRESH = SessionSettings()


def with_noise_reduction(settings: SessionSettings, sent: Sent[NoiseReduction]) -> SessionSettings:
    """Null: none."""
    if isinstance(sent, UnsetType):
        return settings
    return replace(settings, noise_reduction="off" if sent is None else sent.type)


def noise_reduction_json(settings: SessionSettings) -> dict[str, Any] | None:
    mode = settings.noise_reduction
    return None if mode == "off" else {"type": mode}


def with_transcription(settings: SessionSettings, sent: Transcription, asr: str) -> SessionSettings:
    """`asr`: our name for the model that was sent, or the one in effect."""
    return replace(
        settings,
        transcribes=True,
        asr=asr,
        language=kept(sent.language, settings.language, _FRESH.language),
        languages=tuple(kept(sent.languages, settings.languages, _FRESH.languages)),
        prompt=kept(sent.prompt, settings.prompt, _FRESH.prompt),
        keywords=tuple(kept(sent.keywords, settings.keywords, _FRESH.keywords)),
    )


def with_decoding(settings: SessionSettings, sent: Decoding | UnsetType | None) -> SessionSettings:
    """Null takes everything back."""
    if isinstance(sent, UnsetType):
        return settings
    base = _FRESH if sent is None else settings
    sent = sent or Decoding()
    return replace(
        settings,
        task=kept(sent.task, base.task, _FRESH.task),
        prefix=kept(sent.prefix, base.prefix, _FRESH.prefix),
        beam_size=kept(sent.beam_size, base.beam_size, _FRESH.beam_size),
        temperature=kept(sent.temperature, base.temperature, _FRESH.temperature),
        padding=kept(sent.padding, base.padding, _FRESH.padding),
        no_speech_threshold=kept(
            sent.no_speech_threshold, base.no_speech_threshold, _FRESH.no_speech_threshold
        ),
    )


def transcription_json(settings: SessionSettings) -> dict[str, Any]:
    shown: dict[str, Any] = {"model": settings.asr, "language": settings.language}
    if settings.languages:
        shown["languages"] = list(settings.languages)
    if settings.prompt:
        shown["prompt"] = settings.prompt
    if settings.keywords:
        shown["keywords"] = list(settings.keywords)
    return shown


def decoding_json(settings: SessionSettings) -> dict[str, Any]:
    """What differs from the server's own choice."""
    return {
        name: getattr(settings, name)
        for name in Decoding.__struct_fields__
        if getattr(settings, name) != getattr(_FRESH, name)
    }
