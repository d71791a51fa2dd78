"""Settings of the user's audio, transcription and turn detection: parsing and display."""

from dataclasses import replace
from typing import Literal

from msgspec import UnsetType

from core.errors import RequestError
from media.processing.modes import NoiseMode
from pipeline.shared.settings import SessionSettings, TurnDetection
from signaling.realtime.protocol.structs import OptionalField, sent_object, updated_value
from signaling.realtime.session.schema import (
    DecodingOptions,
    InputNoiseReduction,
    InputTranscription,
    SemanticVad,
    ServerVad,
)

_DEFAULTS = SessionSettings()
"Settings of a session whose client sent none. A null from a client resets a field to them."

NOISE_PARAM = "session.audio.input.noise_reduction"
FULL_STRENGTH = 1
"Strength with which OpenAI's service begins, the only one that we accept."


def with_noise_reduction(
    settings: SessionSettings, sent: OptionalField[InputNoiseReduction]
) -> SessionSettings:
    """Applies a client's noise reduction; null turns it off. Raises RequestError."""
    if isinstance(sent, UnsetType):
        return settings
    return replace(settings, noise_reduction="off" if sent is None else _kind(settings, sent))


def _kind(settings: SessionSettings, sent: InputNoiseReduction) -> NoiseMode:
    """Returns the new mode; a missing type keeps the mode in effect, if there is one."""
    if sent_object(sent.strength) not in (None, FULL_STRENGTH):
        raise RequestError(
            f"'{NOISE_PARAM}.strength' is not supported: the type sets the strength. Allowed:"
            f" {FULL_STRENGTH}, the default.",
            code="unsupported_parameter",
            param=f"{NOISE_PARAM}.strength",
        )
    kind: NoiseMode = sent_object(sent.type) or settings.noise_reduction
    if kind == "off":
        raise RequestError(
            f"Missing required parameter: '{NOISE_PARAM}.type'. No noise reduction is in effect"
            " whose type could be kept.",
            code="missing_required_parameter",
            param=f"{NOISE_PARAM}.type",
        )
    return kind


def noise_reduction_json(settings: SessionSettings) -> dict[str, object] | None:
    """Returns the noise reduction as clients see it."""
    mode = settings.noise_reduction
    return None if mode == "off" else {"type": mode}


def with_transcription(
    settings: SessionSettings, sent: InputTranscription, asr: str
) -> SessionSettings:
    """Applies a client's transcription settings. `asr`: our name for the requested model, or the
    one in effect."""
    return replace(
        settings,
        transcribes=True,
        asr=asr,
        language=updated_value(sent.language, settings.language, _DEFAULTS.language),
        languages=tuple(updated_value(sent.languages, settings.languages, _DEFAULTS.languages)),
        prompt=updated_value(sent.prompt, settings.prompt, _DEFAULTS.prompt),
        keywords=tuple(updated_value(sent.keywords, settings.keywords, _DEFAULTS.keywords)),
    )


def with_decoding(
    settings: SessionSettings, sent: DecodingOptions | UnsetType | None
) -> SessionSettings:
    """Applies a client's decoding options; null resets all of them."""
    if isinstance(sent, UnsetType):
        return settings
    base = _DEFAULTS if sent is None else settings
    sent = sent or DecodingOptions()
    return replace(
        settings,
        task=updated_value(sent.task, base.task, _DEFAULTS.task),
        prefix=updated_value(sent.prefix, base.prefix, _DEFAULTS.prefix),
        beam_size=updated_value(sent.beam_size, base.beam_size, _DEFAULTS.beam_size),
        temperature=updated_value(sent.temperature, base.temperature, _DEFAULTS.temperature),
        padding=updated_value(sent.padding, base.padding, _DEFAULTS.padding),
        no_speech_threshold=updated_value(
            sent.no_speech_threshold, base.no_speech_threshold, _DEFAULTS.no_speech_threshold
        ),
    )


def transcription_json(settings: SessionSettings) -> dict[str, object]:
    """Returns the transcription settings as clients see them."""
    shown: dict[str, object] = {"model": settings.asr, "language": settings.language}
    if settings.languages:
        shown["languages"] = list(settings.languages)
    if settings.prompt:
        shown["prompt"] = settings.prompt
    if settings.keywords:
        shown["keywords"] = list(settings.keywords)
    return shown


def decoding_json(settings: SessionSettings) -> dict[str, object]:
    """Returns the decoding options that differ from the server's own choice."""
    return {
        name: getattr(settings, name)
        for name in DecodingOptions.__struct_fields__
        if getattr(settings, name) != getattr(_DEFAULTS, name)
    }


# Turn detection: parsing and display.


def with_turn_detection(now: TurnDetection | None, sent: ServerVad | SemanticVad) -> TurnDetection:
    """Applies a client's turn detection. Another kind begins with its own defaults; the same kind
    keeps the fields that were not sent."""
    kind: Literal["server_vad", "semantic_vad"] = (
        "server_vad" if isinstance(sent, ServerVad) else "semantic_vad"
    )
    fresh = TurnDetection(kind=kind)
    now = now if now and now.kind == kind else fresh
    common = replace(
        now,
        create_response=updated_value(
            sent.create_response, now.create_response, fresh.create_response
        ),
        interrupt_response=updated_value(
            sent.interrupt_response, now.interrupt_response, fresh.interrupt_response
        ),
    )
    if isinstance(sent, SemanticVad):
        return replace(
            common, eagerness=updated_value(sent.eagerness, now.eagerness, fresh.eagerness)
        )
    return replace(
        common,
        threshold=updated_value(sent.threshold, now.threshold, fresh.threshold),
        prefix_padding_ms=updated_value(
            sent.prefix_padding_ms, now.prefix_padding_ms, fresh.prefix_padding_ms
        ),
        silence_ms=updated_value(sent.silence_duration_ms, now.silence_ms, fresh.silence_ms),
        idle_timeout_ms=updated_value(
            sent.idle_timeout_ms, now.idle_timeout_ms, fresh.idle_timeout_ms
        ),
    )


def turn_detection_json(detection: TurnDetection | None) -> dict[str, object] | None:
    """Returns the turn detection as clients see it; None if it is off."""
    if detection is None:
        return None
    common: dict[str, object] = {
        "type": detection.kind,
        "create_response": detection.create_response,
        "interrupt_response": detection.interrupt_response,
    }
    if detection.kind == "semantic_vad":
        return {**common, "eagerness": detection.eagerness}
    return {
        **common,
        "threshold": detection.threshold,
        "prefix_padding_ms": detection.prefix_padding_ms,
        "silence_duration_ms": detection.silence_ms,
        "idle_timeout_ms": detection.idle_timeout_ms,
    }
